#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

#include "simulator/borrowed/ResultPlaces.h"

// LITERALINCLUDE START: QUEUE RULES
// Queues operators. In the execution modes async and chaos an operator's kernel is queued on the current stream, as a
// kernel is on CUDA, and the call returns before the kernel has run.
//
// The shapes and dtypes of the results must be known before the kernel runs. The results of in-place and out= operators
// are arguments. For other operators a meta kernel in C++ computes the shapes, and the results get their memory in the
// call.
//
// A call is not queued if its results are not known for certain, or if a check at the launch shows that it may raise an
// error or warn. Examples: the results are neither arguments nor known from a meta kernel; an out= argument has
// elements and another shape than the result; operands overlap in part; the shapes do not fit; an operand is sparse; an
// index is a mask; the operator raises under torch.use_deterministic_algorithms(). The caller then waits for the stream
// and runs the kernel on its own thread. So the same CPU kernel gives the results and the errors, whether a call is
// queued or not. An error that only the queued kernel finds, such as an index out of range, is raised by a later call
// that waits.
//
// In a capture the calling thread cannot run the kernel. So PyTorch's own meta kernels are asked for more operators, and
// a call whose operands do not fit raises the error at once. SparseCapture.h has the rules for sparse operands.
//
// Rules: a queued kernel keeps no device tensor alive. It holds CPU aliases (tensors over the same bytes,
// ../KernelScope.h), which own no memory. If a tensor is freed meanwhile, its memory is reused in the order of the
// stream, so the kernel still finds its bytes. What the host may change after the call (CPU scalars, CPU indices) is
// copied at the launch.
// LITERALINCLUDE END: QUEUE RULES
namespace at::openreg {

// Queues `op` on the current stream of `device` and replaces its arguments on the stack by its results. Returns false,
// and leaves the stack as it was, if the caller must run the kernel.
bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack, CallKey key);

// Queues the CPU kernel of `op`. `operands` are all arguments of the call. The tensors among them are CPU tensors,
// whose memory must stay valid until the kernel has run.
void queue_cpu_kernel(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands);

} // namespace at::openreg
