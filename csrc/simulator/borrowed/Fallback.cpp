#include "simulator/borrowed/Fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/native/Arguments.h"
#include "aten/native/FallbackPolicy.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/queue/Queue.h"
#include "simulator/borrowed/queue/SparseCapture.h"
#include "simulator/borrowed/random/RandomKernels.h"

namespace at::openreg {
namespace {

// The same value with every tensor replaced by `fn(tensor)`.
template <class Fn>
c10::IValue map_tensors(c10::IValue&& value, const Fn& fn) {
  if (value.isTensor()) {
    return fn(std::move(value).toTensor());
  }
  if (value.isTensorList()) {
    c10::List<Tensor> mapped;
    mapped.reserve(value.toTensorList().size());
    for (Tensor& tensor : std::move(value).toTensorVector()) {
      mapped.push_back(fn(std::move(tensor)));
    }
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> mapped;
    for (std::optional<Tensor> tensor : std::move(value).toOptionalTensorList()) {
      mapped.push_back(tensor ? std::optional<Tensor>(fn(std::move(*tensor))) : std::nullopt);
    }
    return mapped;
  }
  return std::move(value);
}

c10::DispatchKey cpu_key_of(c10::DispatchKeySet keys) { // the device's sparse key -> SparseCPU
  using c10::DispatchKey;
  // While Python chooses the kernels, as in torch.compile's fake tensors, the set also has keys of higher priority.
  constexpr c10::DispatchKeySet layouts{
      DispatchKey::Dense,
      DispatchKey::Quantized,
      DispatchKey::Sparse,
      DispatchKey::SparseCsr,
      DispatchKey::NestedTensor};
  return c10::toRuntimePerBackendFunctionalityKey(
      (keys & layouts).highestFunctionalityKey(), c10::BackendComponent::CPUBit);
}

// Calls the CPU's kernel, or the kernel that stands in for it if the operator draws from a PhiloxGenerator.
void call_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack, bool draws) {
  if (C10_UNLIKELY(draws)) {
    random_kernel(op).callBoxed(op, keys, stack);
  } else {
    op.redispatchBoxed(keys, stack);
  }
}

bool is_sparse(c10::DispatchKey cpu_key) {
  return cpu_key == c10::DispatchKey::SparseCPU || cpu_key == c10::DispatchKey::SparseCsrCPU;
}

bool is_captured(c10::DeviceIndex device) {
  return device >= 0 && c10::openreg::capture_of(c10::openreg::getCurrentOpenRegStream(device)) != 0;
}

Way queue_or_capture(
    const c10::OperatorHandle& op,
    const OperatorTraits& traits,
    c10::DispatchKey cpu_key,
    const KernelScope& scope,
    torch::jit::Stack& stack) {
  // A kernel that is not PyTorch's may do more than its schema says. Only in a capture is there no other way for it.
  if (!traits.builtin && !is_captured(scope.device())) {
    return Way::OnThread;
  }
  scope.check_devices();
  if (scope.spans_devices() || scope.waits_in_this_call()) {
    return Way::OnThread;
  }
  if (cpu_key == c10::DispatchKey::CPU) {
    return try_queue(op, scope.device(), stack, scope.call_key()) ? Way::Queued : Way::OnThread;
  }
  return is_sparse(cpu_key) ? capture_sparse(op, cpu_key, scope.device(), stack, scope.call_key()) : Way::OnThread;
}

} // namespace

static void run_boxed(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack, const OperatorTraits& traits) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  const c10::DispatchKey cpu_key = cpu_key_of(keys);

  KernelScope scope(traits);
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    for_each_tensor(value, [&](const Tensor& tensor) { scope.add_operand(tensor, arguments[i]); });
    if (value.isDevice()) {
      scope.add_device(value.toDevice());
    } else if (value.isBool()) {
      scope.add_flag(value.toBool(), arguments[i]);
    } else if (value.isBoolList()) {
      for (const bool flag : value.toBoolList()) {
        scope.add_flag(flag, arguments[i]);
      }
    } else if ((value.isInt() || value.isDouble()) && C10_UNLIKELY(traits.sync != nullptr)) {
      const bool is_optional = arguments[i].type()->kind() == c10::TypeKind::OptionalType;
      scope.add_flag(is_optional || value.toScalar().toDouble() != 0, arguments[i]);
    }
  }
  const Way way = C10_UNLIKELY(!c10::openreg::executes_inline()) ? queue_or_capture(op, traits, cpu_key, scope, *stack)
                                                                 : Way::OnThread;
  if (way == Way::Queued) {
    return;
  }
  scope.enter(way != Way::WithoutKernel);
  bool draws = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (value.isDevice() && value.toDevice().type() == identity.type) {
      value = Device(kCPU);
    } else if (is_generator(arguments[i])) {
      value = scope.generator(value.toOptional<Generator>());
      draws = draws_as_gpu;
    } else {
      value = map_tensors(std::move(value), [&](Tensor&& tensor) { return scope.alias(std::move(tensor)); });
    }
  }
  const auto run = [&] { call_kernel(op, c10::DispatchKeySet(cpu_key), stack, draws); };
  if (schema.is_mutable()) {
    scope.run_and_write_back(run);
  } else {
    run();
  }
  const size_t results = schema.returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); ++i) {
    (*stack)[i] = map_tensors(std::move((*stack)[i]), [&](Tensor&& tensor) { return scope.result(std::move(tensor)); });
  }
}

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_boxed(op, keys, stack, traits_of(op.schema()));
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(cpu_key_of(keys)),
      "Could not run '",
      op.operator_name(),
      "' with arguments from the '",
      identity.device,
      "' backend: the operator has no CPU kernel that the device could run, and the "
      "device has no kernel of its own.");
  const OperatorTraits& traits = traits_of(op.schema());
  // The CPU kernel of a collective may still work on the copies of the tensors when it has returned.
  TORCH_CHECK_NOT_IMPLEMENTED(
      traits.builtin || !traits.name.starts_with("c10d::"),
      "Could not run '",
      op.operator_name(),
      "' with arguments from the '",
      c10::toString(keys.highestPriorityTypeId()),
      "' backend: the device's collectives take dense tensors only.");
  if (auto* const observer = c10::openreg::observer(); C10_UNLIKELY(observer)) {
    observer->before_fallback(op);
  }
  note_fallback(traits);
  run_boxed(op, keys, stack, traits);
}

} // namespace at::openreg
