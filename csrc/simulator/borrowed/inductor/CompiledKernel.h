#pragma once

#include "runtime/OpenRegKernel.h"

// LITERALINCLUDE START: COMPILED KERNEL RULES
// How the kernels that torch.compile generates reach the device: they enter the kernel scope as every kernel does.
// The scope takes the turn of the stream and notifies the observers (OpenRegKernel.h).
//
// Rules: the calling code has device pointers. The computing code gets pointers of the kernel window, which it can
// dereference (orGetKernelPointer()). The caller may free memory as soon as the launch returns, because freed memory is
// reused in stream order. If the kernel is queued, memory that the host may change afterwards (CPU scalars) is copied
// at the launch.
// LITERALINCLUDE END: COMPILED KERNEL RULES
namespace at::openreg {

// An array that a compiled kernel reads, writes, or both. Generated code contains the same structure
// (torch_openreg/simulator/inductor/launch.h).
struct CompiledOperand {
  const void* data; // device memory, or a CPU scalar
  int64_t size;     // bytes
  unsigned access;  // orAccessRead, orAccessWrite, or both
};

// The function that computes. `body` is the launch's `body`, or a copy of it if the kernel is queued. `data` has one
// pointer for each operand, which the function can dereference.
using CompiledFn = void (*)(const void* body, void* const* data);

} // namespace at::openreg

// Launches a kernel on the current stream of `device`. `name` must be valid until the process ends. `body` is trivially
// copyable and has `bodySize` bytes. If the kernel throws in the execution mode inline, the exception leaves this call.
// In the other execution modes the exception becomes the failure of the stream.
extern "C" OPENREG_API void torch_openreg_launch_compiled(
    int device,
    const char* name,
    const at::openreg::CompiledOperand* operands,
    size_t count,
    at::openreg::CompiledFn run,
    const void* body,
    size_t bodySize);
