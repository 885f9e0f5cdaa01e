#include "Queue.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "Fallback.h"
#include "KernelScope.h"
#include "Layouts.h"
#include "MetaKernels.h"

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
      memory.push_back(result.storage().unsafeGetStorageImpl());
    }
    const c10::openreg::ReservedAllocations allocations(memory);
    op.redispatchBoxed(kCpu, &stack);
  }

  // What the kernel did not write where it belongs. Mostly nothing: the results were its first allocations of their sizes.
  void move_results() {
    c10::SmallVector<std::pair<const Tensor*, Tensor>, 2> misplaced;
    for (size_t i = 0; i < reserved.size(); ++i) {
      const Tensor& result = stack[i].toTensor();
      const Tensor& wanted = reserved[i];
      TORCH_INTERNAL_ASSERT(
          result.sizes() == wanted.sizes() && result.scalar_type() == wanted.scalar_type(),
          "the meta kernel of ",
          op.operator_name(),
          " told ",
          wanted.toString(),
          wanted.sizes(),
          ", and the kernel gave ",
          result.toString(),
          result.sizes());
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

void launch(c10::Stream stream, std::unique_ptr<QueuedKernel> kernel) {
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

// ---- What can be queued

const c10::KernelFunction* find_rule(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  for (const c10::Argument& result : schema.returns()) {
    const bool is_view = result.alias_info() && !result.alias_info()->isWrite();
    if (is_view || result.type()->kind() != c10::TypeKind::TensorType) {
      return nullptr;
    }
  }
  return meta_kernel(op.operator_name());
}

const c10::KernelFunction* rule_of(const c10::OperatorHandle& op) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const c10::KernelFunction*>
      known; // PyTorch's own: they stay
  const auto found = known.find(&op.schema());
  return C10_LIKELY(found != known.end()) ? found->second : known[&op.schema()] = find_rule(op);
}

// The meta kernels ask for a storage's size only to see whether a result must grow.
c10::intrusive_ptr<c10::StorageImpl> meta_storage() {
  static auto* storage = new c10::intrusive_ptr<c10::StorageImpl>(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      std::numeric_limits<int64_t>::max(),
      c10::DataPtr(nullptr, Device(kMeta)),
      nullptr,
      /*resizable=*/false));
  return *storage;
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

  // The arguments that are written would keep their shapes, and overlap with no other one in part.
  bool can_write() const {
    for (const Operand& written : operands_) {
      if (!written.is_written) {
        continue;
      }
      if (written.meta.sizes() != written.cpu.sizes() || written.meta.strides() != written.cpu.strides() ||
          has_internal_overlap(written.cpu) != MemOverlap::No) {
        return false;
      }
      for (const Operand& other : operands_) {
        if (other.device != written.device && other.cpu.defined() && other.cpu.is_alias_of(written.cpu)) {
          const auto status = get_overlap_status(written.cpu, other.cpu);
          if (status != MemOverlapStatus::No && status != MemOverlapStatus::Full) {
            return false;
          }
        }
      }
    }
    return true;
  }

 private:
  struct Operand {
    const TensorImpl* device;
    Tensor cpu, meta;
    bool is_written;
  };
  c10::SmallVector<Operand, 6> operands_;

  const Operand* add(const Tensor& tensor, bool is_written) {
    const TensorImpl* impl = tensor.unsafeGetTensorImpl();
    constexpr size_t kFew = 16; // of a longer list no two are expected to be the same
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
      operand.meta = make_like(meta_storage(), c10::DispatchKey::Meta, *impl);
    } else { // a scalar, or indices: the rules of devices have let it pass
      if (tensor.layout() != kStrided || is_written) {
        return nullptr;
      }
      operand.cpu = tensor.clone();
      if (impl->is_wrapped_number()) {
        operand.cpu.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
      operand.meta = tensor.dim() == 0 ? operand.cpu : make_like(meta_storage(), c10::DispatchKey::Meta, *impl);
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
  return find_rule(op) != nullptr;
}

bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack) {
  const c10::KernelFunction* meta = rule_of(op);
  if (!meta || device < 0) {
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
  if (!run_meta(*meta, op, results) || !operands.can_write()) {
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
    if (!shape.defined() || !shape.is_meta() || shape.is_conj() || shape.is_neg() ||
        !shape.is_non_overlapping_and_dense()) {
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
