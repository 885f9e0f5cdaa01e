#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

// LITERALINCLUDE START: QUEUE RULES
// Operators on the device's time. In the execution modes async and chaos an operator's kernel is queued on the current
// stream, as a kernel is on CUDA, and the call returns before the kernel has run.
//
// The results must be known without running the kernel. Either they are its arguments (in-place, out=), or a meta kernel in
// C++ tells their shapes, and they get their memory at once. An unusual call is not queued: an operator without a meta
// kernel, a result that would have to be resized, operands that overlap, a shape that does not fit. The caller then waits
// for the stream and runs the kernel on its own thread, so that results and errors have one source.
//
// Rules: a queued kernel holds CPU aliases (../KernelScope.h) and no device tensor, because a tensor may be freed while work
// on it is queued. What the host may change after the call (CPU scalars, CPU indices) is copied at the launch.
// LITERALINCLUDE END: QUEUE RULES
namespace at::openreg {

// Queues `op` on the current stream of `device` and replaces its arguments on the stack by its results. Returns false, and
// leaves the stack as it was, if the caller must run the kernel.
bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack);

// Queues the CPU kernel of `op`; `operands` are CPU tensors that nobody else changes.
void queue_on(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands);

} // namespace at::openreg
