#include "simulator/borrowed/queue/QueuedKernel.h"

#include <ATen/ops/copy_ops.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>

#include "aten/native/Arguments.h"
#include "simulator/ThreadOwned.h"
#include "simulator/borrowed/KernelScope.h"

namespace at::openreg {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

bool is_copy(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::copy_";
}

// For each operator and each of its results: how many allocations of the same size the kernel makes before it allocates
// the result. nullopt: compute() guesses.
using Positions = ska::flat_hash_map<const c10::FunctionSchema*, c10::SmallVector<std::optional<size_t>, 2>>;
thread_local constinit c10::openreg::ThreadOwned<Positions> known_positions;

} // namespace

void QueuedKernel::visit_operands(orOperandFn_t visit, void* context) const {
  const auto& arguments = op_.schema().arguments();
  const OperatorTraits& traits = traits_of(op_.schema());
  const auto training = traits.keeps_statistics ? op_.schema().argumentIndexWithName("training") : std::nullopt;
  const bool trains = !training || stack_[*training].toBool();
  for (size_t i = 0; i < stack_.size(); ++i) {
    const unsigned access = !is_written(traits, arguments[i], trains) ? orAccessRead
                            : is_copy(op_) || arguments[i].is_out()   ? orAccessWrite
                                                                      : orAccessRead | orAccessWrite;
    for_each_tensor(stack_[i], [&](const Tensor& tensor) {
      if (tensor.defined()) {
        c10::openreg::visit_tensor(*tensor.unsafeGetTensorImpl(), access, visit, context);
      }
    });
  }
  for (const Reserved& result : reserved_) {
    if (result.memory) {
      const orOperand whole{
          orGetDevicePointer(result.memory->data()), result.memory->nbytes(), 0, nullptr, nullptr, orAccessWrite};
      visit(&whole, context);
    }
  }
}

void QueuedKernel::run() {
  settings_.apply();
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  try {
    move(compute());
  } catch (c10::Error& error) {
    error.add_context(c10::str("raised by ", op_.operator_name(), settings_.launched_at()));
    throw;
  }
}

QueuedKernel::Misplaced QueuedKernel::compute() {
  // Guess: the results of one size are the kernel's first allocations of that size, in order. If the guess was wrong,
  // `positions` keeps the right position for the next call.
  auto& positions = (*known_positions)[&op_.schema()];
  positions.resize(reserved_.size());
  c10::SmallVector<c10::openreg::ReservedMemory, 2> memory;
  for (size_t i = 0; i < reserved_.size(); ++i) {
    if (c10::StorageImpl* storage = reserved_[i].memory.get()) {
      const size_t first = std::count_if(
          memory.begin(), memory.end(), [&](auto& other) { return other.storage->nbytes() == storage->nbytes(); });
      memory.push_back({storage, positions[i].value_or(first)});
    }
  }
  const c10::openreg::ReservedAllocations allocations(memory);
  op_.redispatchBoxed(kCpu, &stack_);
  Misplaced misplaced;
  for (size_t i = 0; i < reserved_.size(); ++i) {
    const Tensor& result = stack_[i].toTensor();
    if (!is_at_reserved_address(reserved_[i], result)) {
      misplaced.emplace_back(&reserved_[i], result);
      positions[i] = allocations.position_of(result.storage().data());
    }
  }
  return misplaced;
}

bool QueuedKernel::is_at_reserved_address(const Reserved& wanted, const Tensor& result) const {
  // The caller did not ask for this result. The kernel may compute it all the same: oneDNN computes the gradients of a
  // weight and of a bias together.
  if (!wanted.memory) {
    return true;
  }
  TORCH_INTERNAL_ASSERT(
      result.defined() && result.sizes() == wanted.shape.sizes_arrayref() && result.dtype() == wanted.dtype &&
          !result.is_conj() && !result.is_neg(),
      "the meta kernel of ",
      op_.operator_name(),
      " computed ",
      c10::str(wanted.dtype, wanted.shape.sizes_arrayref()),
      ", and the kernel gave ",
      result.defined() ? c10::str(result.dtype(), result.sizes()) : "no tensor");
  return result.const_data_ptr() == wanted.memory->data() && result.strides() == wanted.shape.strides_arrayref();
}

void QueuedKernel::move(Misplaced misplaced) const {
  for (auto& [wanted, result] : misplaced) {
    const void* data = result.storage().data();
    if (std::any_of(reserved_.begin(), reserved_.end(), [&](const Reserved& other) {
          return other.memory && other.memory->data() == data;
        })) {
      result = result.clone(); // the result lies in the memory of another result
    }
  }
  for (auto& [wanted, result] : misplaced) {
    Tensor destination = make_like(wanted->memory, c10::DispatchKey::CPU, *result.unsafeGetTensorImpl());
    destination.unsafeGetTensorImpl()->set_sizes_and_strides(
        wanted->shape.sizes_arrayref(), wanted->shape.strides_arrayref(), 0);
    at::_ops::copy_::redispatch(kCpu, destination, result, false);
  }
}

// LITERALINCLUDE START: QUEUE LAUNCH
bool launch(c10::Stream stream, std::unique_ptr<QueuedKernel>& kernel, unsigned flags) {
  const orHostFn_t run = [](void* data) { std::unique_ptr<QueuedKernel>(static_cast<QueuedKernel*>(data))->run(); };
  const auto operands = [](void* data, orOperandFn_t visit, void* context) {
    static_cast<const QueuedKernel*>(data)->visit_operands(visit, context);
  };
  const orKernel what{kernel->name(), operands, kernel.get()};
  const orError_t error = launch_kernel(stream, run, kernel.get(), flags, what);
  if (error == orErrorNotReady) {
    return false;
  }
  OPENREG_CHECK(error);
  kernel.release(); // `run` deletes the kernel
  return true;
}
// LITERALINCLUDE END: QUEUE LAUNCH

} // namespace at::openreg
