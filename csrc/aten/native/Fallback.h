#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace at::openreg {

// Any operator without a kernel of its own: the CPU's kernel, run in place on device memory (KernelScope.h).
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Any operator that has a CPU kernel, queued where that is possible (Queue.h): what the fallback does, and OnCpu.h's
// unboxed form when the device does not execute inline.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Calls `fn` with every tensor in `value`: a Tensor, Tensor[], or Tensor?[] argument.
template <class Fn>
void for_each_tensor(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) {
    fn(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorList()) {
      fn(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor) {
        fn(*tensor);
      }
    }
  }
}

bool is_generator(const c10::Argument& argument);

} // namespace at::openreg
