#pragma once

#include "../../runtime/OpenRegKernel.h"

// LITERALINCLUDE START: COMPILED KERNEL RULES
// How the kernels that torch.compile generates reach the device: they pass the door that every kernel passes
// (OpenRegKernel.h).
//
// Rules: the calling code has device pointers, and the computing code gets pointers of the kernel window. The caller
// may free memory as soon as the launch returns, because freed memory is reused in stream order. Memory that the host
// may change after the launch (CPU scalars) is copied at the launch.
// LITERALINCLUDE END: COMPILED KERNEL RULES
namespace at::openreg {

// An array that a compiled kernel reads, writes, or both. Generated code contains the same structure
// (torch_openreg/_inductor/launch.h).
struct CompiledOperand {
  const void* data; // device memory, or a CPU scalar
  int64_t size;     // bytes
  unsigned access;  // orAccessRead, orAccessWrite, or both
};

// The function that computes. `body` is a copy of the launch's `body`, and `data` has a pointer that can be
// dereferenced for each operand.
using CompiledFn = void (*)(const void* body, void* const* data);

} // namespace at::openreg

// Launches a kernel on the current stream of `device`. `name` must be valid until the process ends. `body` is trivially
// copyable and has `bodySize` bytes. If the kernel throws in inline execution, the exception leaves this call; in the
// other modes it is the stream's failure.
extern "C" OPENREG_API void torch_openreg_launch_compiled(
    int device,
    const char* name,
    const at::openreg::CompiledOperand* operands,
    size_t count,
    at::openreg::CompiledFn run,
    const void* body,
    size_t bodySize);
