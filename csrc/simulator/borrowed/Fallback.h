#pragma once

#include <ATen/core/boxing/KernelFunction.h>

// The fallback: the boxed kernel of every operator for which the device has no other kernel.
namespace at::openreg {

// Runs an operator that has no kernel of its own on the device: runs its CPU kernel in place on device memory
// (KernelScope.h). Throws if the operator has no CPU kernel, or if the policy (FallbackPolicy.h) refuses the operator.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Runs any operator that has a CPU kernel, and queues the call if that is possible (queue/Queue.h). The fallback calls
// run_boxed(). Kernels with typed arguments (CpuKernel.h) call it in two cases: if the device does not execute inline,
// and if the program is deterministic and the operator may be nondeterministic (CheckedCpuKernel).
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace at::openreg
