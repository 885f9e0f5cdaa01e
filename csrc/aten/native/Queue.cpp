#include "Queue.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "Fallback.h"
#include "KernelScope.h"
#include "Layouts.h"
#include "MetaKernels.h"
#include "Minimal.h"

extern "C" [[gnu::weak]] int omp_pause_resource_all(int);

namespace at::openreg {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

std::atomic<LaunchSite> launch_site{nullptr};

// ---- On the device's time

struct QueuedKernel {
  c10::OperatorHandle op;
  torch::jit::Stack stack;              // CPU aliases
  c10::SmallVector<Tensor, 2> reserved; // CPU aliases of the memory that the results must be in
  int threads;
  c10::AutogradState autograd;
  std::string launched_at;

  void run() {
    if (at::get_num_threads() != threads) {
      at::set_num_threads(threads);
    }
    c10::AutogradState::set_tls_state(autograd);
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    try {
      compute();
      move_results();
    } catch (c10::Error& error) {
      error.add_context(
          c10::str("raised by ", op.operator_name(), launched_at.empty() ? "" : ", launched at " + launched_at));
      throw;
    }
  }

 private:
  void compute() {
    c10::SmallVector<c10::StorageImpl*, 2> memory;
    for (const Tensor& result : reserved) {
      if (result.defined()) {
        memory.push_back(result.storage().unsafeGetStorageImpl());
      }
    }
    const c10::openreg::ReservedAllocations allocations(memory);
    op.redispatchBoxed(kCpu, &stack);
  }

  static std::string shape_of(const Tensor& tensor) {
    return tensor.defined() ? c10::str(tensor.toString(), tensor.sizes()) : "no tensor";
  }

  // What the kernel did not write where it belongs. Mostly nothing: the results were its first allocations of their sizes.
  void move_results() {
    c10::SmallVector<std::pair<const Tensor*, Tensor>, 2> misplaced;
    for (size_t i = 0; i < reserved.size(); ++i) {
      const Tensor& result = stack[i].toTensor();
      const Tensor& wanted = reserved[i];
      if (!wanted.defined() && !result.defined()) {
        continue;
      }
      TORCH_INTERNAL_ASSERT(
          result.defined() && wanted.defined() && result.sizes() == wanted.sizes() &&
              result.scalar_type() == wanted.scalar_type(),
          "the meta kernel of ",
          op.operator_name(),
          " told ",
          shape_of(wanted),
          ", and the kernel gave ",
          shape_of(result));
      if (result.const_data_ptr() != wanted.const_data_ptr() || result.strides() != wanted.strides()) {
        misplaced.emplace_back(&wanted, result);
      }
    }
    for (auto& [wanted, result] : misplaced) { // it may lie in the memory of another one
      result = result.clone();
    }
    for (auto& [wanted, result] : misplaced) {
      Tensor destination = *wanted;
      at::_ops::copy_::redispatch(kCpu, destination, result, false);
    }
  }
};

// The compute thread's OpenMP team would slow down the host's own (KernelScope.cpp): it goes when there is nothing to run.
// Weak: whichever OpenMP runtime PyTorch has brought along, if any.
void release_team_when_idle() {
  constexpr unsigned int kMicroseconds = 1000; // making a team again takes about 50
  if (omp_pause_resource_all) {
    constexpr int kSoft = 1; // omp_pause_soft
    OPENREG_CHECK(orSetIdleCallback([](void*) { omp_pause_resource_all(kSoft); }, nullptr, kMicroseconds));
  }
}

// LITERALINCLUDE START: QUEUE LAUNCH
void launch(c10::Stream stream, std::unique_ptr<QueuedKernel> kernel) {
  static std::once_flag once;
  std::call_once(once, release_team_when_idle);
  kernel->threads = at::get_num_threads();
  kernel->autograd = c10::AutogradState::get_tls_state();
  if (const LaunchSite site = launch_site.load(std::memory_order_relaxed)) {
    kernel->launched_at = site();
  }
  const orHostFn_t run = [](void* data) { std::unique_ptr<QueuedKernel>(static_cast<QueuedKernel*>(data))->run(); };
  const auto lock = c10::openreg::lock_stream(stream);
  OPENREG_CHECK(orLaunch(c10::openreg::stream_handle(stream), run, kernel.get(), orLaunchDefault));
  kernel.release(); // the call deletes it
}
// LITERALINCLUDE END: QUEUE LAUNCH

// ---- What can be queued

struct Rule {
  enum class Results {
    Unknown,      // not queued
    Meta,         // the meta kernel tells
    InPlace,      // the first argument
    WrittenLists, // none: it writes lists of tensors, as the fused optimizers do
  } results = Results::Unknown;
  const c10::KernelFunction* meta = nullptr;
};

// LITERALINCLUDE START: QUEUE ELIGIBILITY
Rule find_rule(const c10::OperatorHandle& op) {
  using Results = Rule::Results;
  const c10::FunctionSchema& schema = op.schema();
  const auto writes = [](const c10::Argument& each) { return each.alias_info() && each.alias_info()->isWrite(); };
  for (const c10::Argument& result : schema.returns()) {
    const bool is_view = result.alias_info() && !writes(result);
    if (is_view || result.type()->kind() != c10::TypeKind::TensorType) {
      return {};
    }
  }
  if (const c10::KernelFunction* meta = meta_kernel(op.operator_name())) {
    return {Results::Meta, meta};
  }
  const auto& arguments = schema.arguments();
  const auto written = std::count_if(arguments.begin(), arguments.end(), writes);
  if (written == 0 || op.hasTag(at::Tag::inplace_view) || !schema.name().ends_with('_')) {
    return {};
  }
  if (schema.returns().empty()) {
    return {Results::WrittenLists};
  }
  const bool only_self = written == 1 && writes(arguments[0]) && schema.returns().size() == 1;
  return {only_self ? Results::InPlace : Results::Unknown};
}
// LITERALINCLUDE END: QUEUE ELIGIBILITY

const Rule& rule_of(const c10::OperatorHandle& op) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, Rule> known; // PyTorch's own: they stay
  const auto found = known.find(&op.schema());
  return C10_LIKELY(found != known.end()) ? found->second : known[&op.schema()] = find_rule(op);
}

constexpr size_t kFew = 16; // operands up to which each is told from every other

// The meta kernels ask for a storage's size, to see whether a result must grow, and for its identity, to see whether operands
// overlap: each has its own.
c10::intrusive_ptr<c10::StorageImpl> meta_storage(size_t operand) {
  static const auto* storages = [] {
    auto* all = new std::array<c10::intrusive_ptr<c10::StorageImpl>, kFew + 1>;
    for (auto& storage : *all) {
      storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          std::numeric_limits<int64_t>::max(),
          c10::DataPtr(nullptr, Device(kMeta)),
          nullptr,
          /*resizable=*/false);
    }
    return all;
  }();
  return (*storages)[std::min(operand, kFew)];
}

// The operands of one call, as the meta kernel and as the queued kernel see them.
class Operands {
 public:
  explicit Operands(size_t count) {
    for_meta.reserve(count);
    for_kernel.reserve(count);
  }

  torch::jit::Stack for_meta, for_kernel;

  // False: not of a kind that is queued.
  bool add(const c10::IValue& value, const c10::Argument& argument) {
    const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
    if (value.isTensor()) {
      const Operand* operand = add(value.toTensor(), is_written);
      if (!operand) {
        return false;
      }
      for_meta.emplace_back(operand->meta);
      for_kernel.emplace_back(operand->cpu);
      return true;
    }
    if (value.isTensorList()) {
      return add_list<Tensor>(value.toTensorList(), is_written);
    }
    if (value.isOptionalTensorList()) {
      return add_list<std::optional<Tensor>>(value.toOptionalTensorList(), is_written);
    }
    if (value.isDevice() || value.isStorage() || value.isGenerator()) {
      return false;
    }
    for_meta.push_back(value);
    for_kernel.push_back(value);
    return true;
  }

  // Gives outputs that are empty, as those of factories are, the shapes that the meta kernel gave them.
  void resize_empty_outputs() {
    for (Operand& written : operands_) {
      if (written.is_written && written.cpu.numel() == 0 && written.cpu.sizes() != written.meta.sizes()) {
        const auto device = Tensor(c10::intrusive_ptr<TensorImpl>::reclaim_copy(written.device));
        openreg::resize_(device, written.meta.sizes(), std::nullopt);
        written.device->set_sizes_and_strides(written.meta.sizes(), written.meta.strides());
        TensorImpl* cpu = written.cpu.unsafeGetTensorImpl();
        cpu->set_storage_keep_dtype(c10::Storage(c10::openreg::twin_of(device.storage().unsafeGetStorageImpl())));
        cpu->set_sizes_and_strides(written.meta.sizes(), written.meta.strides());
      }
    }
  }

  // Every tensor has the shape of the first one, or can be expanded to it: the shape at least is no error.
  bool fit_the_first() const {
    return std::all_of(operands_.begin(), operands_.end(), [&](const Operand& each) {
      return !each.cpu.defined() || is_expandable_to(each.cpu.sizes(), operands_[0].cpu.sizes());
    });
  }

  // The arguments that are written would keep their shapes, and overlap with no other one in part.
  bool can_write() const {
    for (const Operand& written : operands_) {
      if (!written.is_written) {
        continue;
      }
      if (written.meta.sizes() != written.cpu.sizes() || written.meta.strides() != written.cpu.strides() ||
          has_internal_overlap(written.cpu) == MemOverlap::Yes) {
        return false;
      }
      for (const Operand& other : operands_) {
        if (other.device != written.device && other.cpu.defined() && other.cpu.is_alias_of(written.cpu) &&
            get_overlap_status(written.cpu, other.cpu) == MemOverlapStatus::Partial) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  struct Operand {
    TensorImpl* device;
    Tensor cpu, meta;
    bool is_written;
  };
  c10::SmallVector<Operand, 6> operands_;

  const Operand* add(const Tensor& tensor, bool is_written) {
    TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (operands_.size() < kFew) {
      for (Operand& known : operands_) {
        if (known.device == impl) { // the kernel must see that it is the same
          known.is_written |= is_written;
          return &known;
        }
      }
    }
    Operand operand{impl, Tensor(), Tensor(), is_written};
    if (!tensor.defined()) {
    } else if (tensor.is_privateuseone()) {
      if (has_components(*impl) || tensor.layout() != kStrided || tensor._is_zerotensor() || !tensor.has_storage()) {
        return nullptr;
      }
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      if (!c10::openreg::keeps_twin(storage)) {
        return nullptr;
      }
      operand.cpu = make_like(c10::openreg::twin_of(storage), c10::DispatchKey::CPU, *impl);
      operand.meta = make_like(meta_storage(operands_.size()), c10::DispatchKey::Meta, *impl);
    } else { // a scalar, or indices: the rules of devices have let it pass
      if (tensor.layout() != kStrided || is_written) {
        return nullptr;
      }
      operand.cpu = impl->is_wrapped_number() ? tensor : tensor.clone(); // a Python number nobody can change
      operand.meta =
          tensor.dim() == 0 ? operand.cpu : make_like(meta_storage(operands_.size()), c10::DispatchKey::Meta, *impl);
    }
    operands_.push_back(std::move(operand));
    return &operands_.back();
  }

  template <class T>
  bool add_list(const c10::List<T>& tensors, bool is_written) {
    c10::List<T> meta, cpu;
    meta.reserve(tensors.size());
    cpu.reserve(tensors.size());
    for (const T& each : tensors) {
      if constexpr (!std::is_same_v<T, Tensor>) {
        if (!each.has_value()) {
          meta.push_back(std::nullopt);
          cpu.push_back(std::nullopt);
          continue;
        }
      }
      const Tensor& tensor = [&]() -> const Tensor& {
        if constexpr (std::is_same_v<T, Tensor>) {
          return each;
        } else {
          return *each;
        }
      }();
      if (!std::is_same_v<T, Tensor> && isIntegralType(tensor.scalar_type(), true) && tensor.element_size() == 1) {
        return false; // a mask among indices: how many are chosen?
      }
      const Operand* operand = add(tensor, is_written);
      if (!operand) {
        return false;
      }
      meta.push_back(operand->meta);
      cpu.push_back(operand->cpu);
    }
    for_meta.emplace_back(std::move(meta));
    for_kernel.emplace_back(std::move(cpu));
    return true;
  }
};

bool run_meta(const c10::KernelFunction& kernel, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    kernel.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const std::exception&) {
    return false; // the CPU's kernel will say it, in its words
  }
}

// A tensor on the device like a meta kernel's result, not yet written.
Tensor reserve_like(const Tensor& meta, c10::DeviceIndex device) {
  const size_t bytes = at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.element_size());
  return make_like(
      c10::openreg::make_storage(bytes, device), c10::DispatchKey::PrivateUse1, *meta.unsafeGetTensorImpl());
}

} // namespace

bool is_queueable(const c10::OperatorHandle& op) {
  return find_rule(op).results != Rule::Results::Unknown;
}

bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack) {
  const Rule rule = rule_of(op);
  if (rule.results == Rule::Results::Unknown || device < 0) {
    return false;
  }
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  const size_t first = stack.size() - arguments.size();
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  run_backward_on_this_thread();

  Operands operands(arguments.size());
  c10::openreg::OpenRegGeneratorImpl* generator = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(arguments[i])) {
      generator = &c10::openreg::generator_of(stack[first + i].toOptional<Generator>(), device);
      operands.for_meta.emplace_back();
      operands.for_kernel.emplace_back(generator->queued_generator());
    } else if (!operands.add(stack[first + i], arguments[i])) {
      return false;
    }
  }
  torch::jit::Stack& results = operands.for_meta;
  if (rule.meta) {
    if (!run_meta(*rule.meta, op, results)) {
      return false;
    }
    operands.resize_empty_outputs();
  } else {
    if (rule.results == Rule::Results::InPlace && !operands.fit_the_first()) {
      return false;
    }
    results.resize(schema.returns().size());
  }
  if (!operands.can_write()) {
    return false;
  }

  auto kernel = std::make_unique<QueuedKernel>(QueuedKernel{op, {}, {}, 0, c10::AutogradState::get_tls_state(), {}});
  size_t written = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info()) { // the next of the arguments that are written
      while (!(arguments[written].alias_info() && arguments[written].alias_info()->isWrite())) {
        ++written;
      }
      results[i] = stack[first + written++];
      continue;
    }
    const Tensor& shape = results[i].toTensor();
    if (!shape.defined()) { // a gradient that is not asked for
      kernel->reserved.emplace_back();
      continue;
    }
    if (!shape.is_meta() || shape.is_conj() || shape.is_neg() || !shape.is_non_overlapping_and_dense()) {
      return false;
    }
    Tensor result = reserve_like(shape, device);
    kernel->reserved.push_back(make_like(
        c10::openreg::twin_of(result.storage().unsafeGetStorageImpl()),
        c10::DispatchKey::CPU,
        *result.unsafeGetTensorImpl()));
    results[i] = std::move(result);
  }
  kernel->stack = std::move(operands.for_kernel);
  const c10::Stream stream = c10::openreg::current_stream(device);
  if (generator) {
    generator->launch_on(stream, [&] { launch(stream, std::move(kernel)); });
  } else {
    launch(stream, std::move(kernel));
  }
  torch::jit::drop(stack, arguments.size());
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return true;
}

void queue_on(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands) {
  launch(
      stream,
      std::make_unique<QueuedKernel>(
          QueuedKernel{op, std::move(operands), {}, 0, c10::AutogradState::get_tls_state(), {}}));
}

void set_launch_site(LaunchSite site) {
  launch_site.store(site, std::memory_order_relaxed);
}

} // namespace at::openreg
