#include "Queue.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <atomic>

#include "Alerts.h"
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

bool is_copy(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::copy_";
}

// ---- On the device's time

// A result that has its memory already.
struct Reserved {
  c10::intrusive_ptr<c10::StorageImpl> memory; // as kernels see it; null: the kernel gives no tensor here
  c10::impl::SizesAndStrides shape;
  caffe2::TypeMeta dtype;
};

struct QueuedKernel {
  c10::OperatorHandle op;
  torch::jit::Stack stack{}; // CPU aliases
  c10::SmallVector<Reserved, 2> reserved{};
  LaunchSettings settings{};

  // For as long as it has not run.
  void visit_operands(orOperandFn_t visit, void* context) const {
    const auto& arguments = op.schema().arguments();
    const DevicePolicy& policy = policy_of(op.schema());
    const auto training = policy.keeps_statistics ? op.schema().argumentIndexWithName("training") : std::nullopt;
    const bool trains = !training || stack[*training].toBool();
    for (size_t i = 0; i < stack.size(); ++i) {
      const unsigned access = !is_written(policy, arguments[i], trains) ? orAccessRead
                              : is_copy(op) || arguments[i].is_out()    ? orAccessWrite
                                                                        : orAccessRead | orAccessWrite;
      for_each_tensor(stack[i], [&](const Tensor& tensor) {
        if (tensor.defined()) {
          c10::openreg::visit_tensor(*tensor.unsafeGetTensorImpl(), access, visit, context);
        }
      });
    }
    for (const Reserved& result : reserved) {
      if (result.memory) {
        const orOperand whole{
            orGetDevicePointer(result.memory->data()), result.memory->nbytes(), 0, nullptr, nullptr, orAccessWrite};
        visit(&whole, context);
      }
    }
  }

  void run() {
    settings.apply();
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    try {
      move(compute());
    } catch (c10::Error& error) {
      error.add_context(c10::str("raised by ", op.operator_name(), settings.launched_at()));
      throw;
    }
  }

 private:
  using Misplaced = c10::SmallVector<std::pair<const Reserved*, Tensor>, 2>; // results that are elsewhere

  Misplaced compute() {
    // A result is its kernel's first allocation of that size; where it turns out to be another one, the next call knows.
    thread_local ska::flat_hash_map<const c10::FunctionSchema*, c10::SmallVector<std::optional<size_t>, 2>> known;
    auto& turns = known[&op.schema()];
    turns.resize(reserved.size());
    c10::SmallVector<c10::openreg::ReservedMemory, 2> memory;
    for (size_t i = 0; i < reserved.size(); ++i) {
      if (c10::StorageImpl* storage = reserved[i].memory.get()) {
        const size_t first = std::count_if(
            memory.begin(), memory.end(), [&](auto& other) { return other.storage->nbytes() == storage->nbytes(); });
        memory.push_back({storage, turns[i].value_or(first)});
      }
    }
    const c10::openreg::ReservedAllocations allocations(memory);
    op.redispatchBoxed(kCpu, &stack);
    Misplaced misplaced;
    for (size_t i = 0; i < reserved.size(); ++i) {
      const Tensor& result = stack[i].toTensor();
      if (!is_in_place(reserved[i], result)) {
        misplaced.emplace_back(&reserved[i], result);
        turns[i] = allocations.turn_of(result.storage().data());
      }
    }
    return misplaced;
  }

  bool is_in_place(const Reserved& wanted, const Tensor& result) const {
    if (!wanted.memory) { // not asked for; oneDNN's gradients of a weight and a bias come together all the same
      return true;
    }
    TORCH_INTERNAL_ASSERT(
        result.defined() && result.sizes() == wanted.shape.sizes_arrayref() && result.dtype() == wanted.dtype &&
            !result.is_conj() && !result.is_neg(),
        "the meta kernel of ",
        op.operator_name(),
        " told ",
        c10::str(wanted.dtype, wanted.shape.sizes_arrayref()),
        ", and the kernel gave ",
        result.defined() ? c10::str(result.dtype(), result.sizes()) : "no tensor");
    return result.const_data_ptr() == wanted.memory->data() && result.strides() == wanted.shape.strides_arrayref();
  }

  void move(Misplaced misplaced) const {
    for (auto& [wanted, result] : misplaced) {
      const void* data = result.storage().data();
      if (std::any_of(reserved.begin(), reserved.end(), [&](const Reserved& other) {
            return other.memory && other.memory->data() == data;
          })) {
        result = result.clone(); // it lies where another one belongs
      }
    }
    for (auto& [wanted, result] : misplaced) {
      Tensor destination = make_like(wanted->memory, c10::DispatchKey::CPU, *result.unsafeGetTensorImpl());
      destination.unsafeGetTensorImpl()->set_sizes_and_strides(
          wanted->shape.sizes_arrayref(), wanted->shape.strides_arrayref(), 0);
      at::_ops::copy_::redispatch(kCpu, destination, result, false);
    }
  }
};

// One OpenMP team at a time (KernelScope.cpp): the launching thread's goes when it launches, which costs 25 ns if it has
// none, and the compute thread's when there is nothing to run. With both, a training step of a transformer took 24 ms
// on two processors, and now takes 14. Weak: whichever OpenMP runtime PyTorch has brought along, if any.
void release_team() {
  if (omp_pause_resource_all) {
    constexpr int kSoft = 1; // omp_pause_soft
    omp_pause_resource_all(kSoft);
  }
}

void release_team_when_idle() {
  constexpr unsigned int kMicroseconds = 1000; // making a team again takes about 50
  OPENREG_CHECK(orSetIdleCallback([](void*) { release_team(); }, nullptr, kMicroseconds));
}

// LITERALINCLUDE START: QUEUE LAUNCH
// Queues the kernel on `stream` and takes it. False, and it keeps it: `flags` has orLaunchNoWait, and a launch would wait.
bool launch(c10::Stream stream, std::unique_ptr<QueuedKernel>& kernel, unsigned flags = orLaunchDefault) {
  const orHostFn_t run = [](void* data) { std::unique_ptr<QueuedKernel>(static_cast<QueuedKernel*>(data))->run(); };
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    static_cast<const QueuedKernel*>(data)->visit_operands(visit, context);
  };
  const orKernel what{policy_of(kernel->op.schema()).name.c_str(), operands, kernel.get()};
  const orError_t error = launch_kernel(stream, run, kernel.get(), flags, what);
  if (error == orErrorNotReady) {
    return false;
  }
  OPENREG_CHECK(error);
  kernel.release(); // the call deletes it
  return true;
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
  size_t generator = std::numeric_limits<size_t>::max(); // which argument is one
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
  if (C10_LIKELY(found != known.end())) {
    return found->second;
  }
  Rule& rule = known[&op.schema()] = find_rule(op);
  const auto& arguments = op.schema().arguments();
  const auto generator = std::find_if(arguments.begin(), arguments.end(), is_generator);
  if (generator != arguments.end()) {
    rule.generator = generator - arguments.begin();
  }
  return rule;
}

constexpr size_t kFew = 16; // operands up to which each is told from every other

// The meta kernels ask for a storage's size, to see whether a result must grow, and for its identity, to see whether
// operands overlap: each has its own.
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

// A tensor of the meta device like `like`, for the operand of that number: valid until the thread's next call of it.
Tensor meta_operand(size_t operand, const TensorImpl& like) {
  thread_local std::vector<Tensor> kept; // to make tensors takes longer than most meta kernels
  if (kept.size() <= operand) {
    kept.resize(operand + 1);
  }
  Tensor& meta = kept[operand];
  TensorImpl* impl = meta.unsafeGetTensorImpl();
  const auto has_math_bits = [](const TensorImpl& tensor) { return tensor.is_conj() || tensor.is_neg(); };
  if (C10_LIKELY(meta.defined() && meta.use_count() == 1 && !has_math_bits(*impl) && !has_math_bits(like))) {
    impl->set_storage_and_dtype(impl->storage(), like.dtype());
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (C10_UNLIKELY(impl->is_wrapped_number() != like.is_wrapped_number())) {
      impl->set_wrapped_number(like.is_wrapped_number());
    }
  } else {
    meta = make_like(meta_storage(operand), c10::DispatchKey::Meta, like);
  }
  return meta;
}

Tensor share(TensorImpl* tensor) {
  return Tensor(c10::intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(tensor));
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
      Tensor meta, cpu;
      if (!add(value.toTensor(), is_written, meta, cpu)) {
        return false;
      }
      for_meta.emplace_back(std::move(meta));
      for_kernel.emplace_back(std::move(cpu));
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

  // Gives outputs that are empty, as those of factories are, the shapes that the meta kernel gave them. Not one that is
  // an input too, which the kernel must see as it is.
  void resize_empty_outputs() {
    for (Operand& written : operands_) {
      if (written.is_written && !written.is_repeated && written.cpu->numel() == 0 &&
          written.cpu->sizes() != written.meta->sizes()) {
        const Tensor device = share(written.device);
        openreg::resize_(device, written.meta->sizes(), std::nullopt);
        written.device->set_sizes_and_strides(written.meta->sizes(), written.meta->strides());
        written.cpu->set_storage_keep_dtype(
            c10::Storage(c10::openreg::twin_of(device.storage().unsafeGetStorageImpl())));
        written.cpu->set_sizes_and_strides(written.meta->sizes(), written.meta->strides());
      }
    }
  }

  // Every tensor has the shape of the first one, or can be expanded to it: the shape at least is no error.
  bool fit_the_first() const {
    return std::all_of(operands_.begin(), operands_.end(), [&](const Operand& each) {
      return !each.defined() || is_expandable_to(each.cpu->sizes(), operands_[0].cpu->sizes());
    });
  }

  // The arguments that are written would keep their shapes, and overlap with no other one in part.
  bool can_write() const {
    for (const Operand& written : operands_) {
      if (!written.is_written) {
        continue;
      }
      if (written.meta->sizes() != written.cpu->sizes() || written.meta->strides() != written.cpu->strides() ||
          has_internal_overlap(written.cpu) == MemOverlap::Yes) {
        return false;
      }
      for (const Operand& other : operands_) {
        if (other.device != written.device && other.defined() &&
            other.cpu->storage().is_alias_of(written.cpu->storage()) &&
            get_overlap_status(written.cpu, other.cpu) == MemOverlapStatus::Partial) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  struct Operand {
    TensorImpl *device, *cpu, *meta; // the stacks hold the last two
    bool is_written;
    bool is_repeated = false; // among the arguments

    bool defined() const {
      return cpu != c10::UndefinedTensorImpl::singleton();
    }
  };
  c10::SmallVector<Operand, 6> operands_;

  // Sets `cpu` and `meta`.
  bool add(const Tensor& tensor, bool is_written, Tensor& meta, Tensor& cpu) {
    TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (operands_.size() < kFew) {
      for (Operand& known : operands_) {
        if (known.device == impl) { // the kernel must see that it is the same
          known.is_written |= is_written;
          known.is_repeated = true;
          meta = share(known.meta);
          cpu = share(known.cpu);
          return true;
        }
      }
    }
    if (!tensor.defined()) {
    } else if (tensor.is_privateuseone()) {
      if (has_components(*impl) || tensor.layout() != kStrided || tensor._is_zerotensor() || !tensor.has_storage()) {
        return false;
      }
      c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
      const bool lacks_memory = !storage->data() && impl->numel() > 0;
      if (!c10::openreg::keeps_twin(storage) || c10::openreg::is_cow(storage) || lacks_memory) {
        return false;
      }
      cpu = make_like(c10::openreg::twin_of(storage), c10::DispatchKey::CPU, *impl);
      meta = meta_operand(operands_.size(), *impl);
    } else { // a scalar, or indices: the rules of devices have let it pass
      if (tensor.layout() != kStrided || is_written) {
        return false;
      }
      cpu = impl->is_wrapped_number() ? tensor : tensor.clone(); // a Python number nobody can change
      meta = tensor.dim() == 0 ? cpu : meta_operand(operands_.size(), *impl);
    }
    operands_.push_back({impl, cpu.unsafeGetTensorImpl(), meta.unsafeGetTensorImpl(), is_written});
    return true;
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
      Tensor its_meta, its_cpu;
      if (!add(tensor, is_written, its_meta, its_cpu)) {
        return false;
      }
      meta.push_back(std::move(its_meta));
      cpu.push_back(std::move(its_cpu));
    }
    for_meta.emplace_back(std::move(meta));
    for_kernel.emplace_back(std::move(cpu));
    return true;
  }
};

// Also where it warns, as of an output that is resized: the CPU's kernel warns again, and on another thread nobody
// would hear of it.
bool run_meta(const c10::KernelFunction& kernel, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  struct Refusal final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      TORCH_CHECK(false, warning.msg());
    }
  };
  static Refusal refusal;
  const c10::WarningUtils::WarningHandlerGuard guard(&refusal);
  try {
    kernel.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const std::exception&) {
    return false; // the CPU's kernel will say it, in its words
  }
}

} // namespace

LaunchSettings::LaunchSettings() : threads_(at::get_num_threads()), autograd_(c10::AutogradState::get_tls_state()) {
  const LaunchSite site = launch_site.load(std::memory_order_relaxed);
  if (site) {
    launched_at_ = ", launched at " + site();
  }
}

void LaunchSettings::apply() const {
  if (at::get_num_threads() != threads_) {
    at::set_num_threads(threads_);
  }
  c10::AutogradState::set_tls_state(autograd_);
}

orError_t launch_kernel(c10::Stream stream, orHostFn_t run, void* data, unsigned flags, const orKernel& what) {
  static std::atomic<bool> releases{false};
  if (!releases.exchange(true, std::memory_order_relaxed)) {
    release_team_when_idle();
  }
  release_team();
  return orLaunchDescribed(c10::openreg::stream_handle(stream), run, data, flags, &what);
}

bool is_queueable(const c10::OperatorHandle& op) {
  return find_rule(op).results != Rule::Results::Unknown;
}

bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack) {
  const Rule rule = rule_of(op);
  if (rule.results == Rule::Results::Unknown || device < 0 ||
      (C10_UNLIKELY(globalContext().deterministicAlgorithms()) && alerts(op))) {
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
    if (C10_UNLIKELY(i == rule.generator)) {
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

  auto kernel = std::make_unique<QueuedKernel>(QueuedKernel{op});
  size_t written = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info()) { // the next of the arguments that are written
      while (!(arguments[written].alias_info() && arguments[written].alias_info()->isWrite())) {
        ++written;
      }
      results[i] = stack[first + written++];
      continue;
    }
    Tensor meta = std::move(results[i]).toTensor();
    if (!meta.defined()) { // a gradient that is not asked for
      kernel->reserved.emplace_back();
      results[i] = std::move(meta);
      continue;
    }
    if (!meta.is_meta() || meta.is_conj() || meta.is_neg() || !meta.is_non_overlapping_and_dense()) {
      return false;
    }
    auto memory = c10::openreg::make_storage(
        at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.element_size()), device);
    Reserved& reserved = kernel->reserved.emplace_back();
    reserved.memory = c10::openreg::twin_of(memory.get());
    reserved.shape.set_sizes(meta.sizes());
    reserved.shape.set_strides(meta.strides());
    reserved.dtype = meta.dtype();
    Tensor result = to_device(std::move(meta), std::move(memory));
    results[i] = std::move(result);
  }
  kernel->stack = std::move(operands.for_kernel);
  const c10::Stream stream = c10::openreg::current_stream(device);
  if (generator) {
    generator->launch_on(stream, [&] { return launch(stream, kernel, orLaunchNoWait); });
  } else {
    launch(stream, kernel);
  }
  torch::jit::drop(stack, arguments.size());
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return true;
}

void queue_on(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands) {
  auto kernel = std::make_unique<QueuedKernel>(QueuedKernel{op, std::move(operands)});
  launch(stream, kernel);
}

void set_launch_site(LaunchSite site) {
  launch_site.store(site, std::memory_order_relaxed);
}

} // namespace at::openreg
