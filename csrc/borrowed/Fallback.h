#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace at::openreg {

// Any operator without a kernel of its own: the CPU's kernel, run in place on device memory (KernelScope.h).
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Any operator that has a CPU kernel, queued where that is possible (queue/Queue.h): what the fallback does, and CpuKernel.h's
// unboxed form when the device does not execute inline.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace at::openreg
