#pragma once

#include "../../runtime/OpenRegKernel.h"

// LITERALINCLUDE START: COMPILED KERNEL RULES
// How a kernel that torch.compile generated gets to the device: it passes the door that every kernel passes
// (OpenRegKernel.h).
//
// Rules: the code that calls has device pointers, and the code that computes gets pointers of the kernel window. Memory
// may be freed as soon as the launch returns, because freed memory is reused in stream order. What the host may change
// after the launch (CPU scalars) is copied at the launch.
// LITERALINCLUDE END: COMPILED KERNEL RULES
namespace at::openreg {

// An array that a compiled kernel reads, writes, or both. Generated code contains the same structure
// (torch_openreg/_inductor/launch.h).
struct CompiledOperand {
  const void* data; // on the device, or a scalar of the host
  int64_t size;     // bytes
  unsigned access;  // orAccessRead, orAccessWrite
};

// Computes: `body` is what the launch was given, and `data` has one usable pointer for each operand.
using CompiledFn = void (*)(const void* body, void* const* data);

} // namespace at::openreg

// Launches a kernel on the current stream of `device`. `name` stays; `body` is trivially copyable, `bodySize` bytes
// long. What the kernel throws leaves the call in the mode inline, and otherwise is the stream's failure.
extern "C" OPENREG_API void torch_openreg_launch_compiled(
    int device,
    const char* name,
    const at::openreg::CompiledOperand* operands,
    size_t count,
    at::openreg::CompiledFn run,
    const void* body,
    size_t bodySize);
