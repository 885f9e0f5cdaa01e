#pragma once

#include <c10/core/Device.h>
#include <openreg.h>

#include <functional>
#include <vector>

#include "runtime/OpenRegException.h"

// How the kernels that Triton's interpreter computes reach the device: they enter the kernel scope as every kernel does
// (OpenRegKernel.h). The interpreter is Python code on the calling thread, so such a kernel is never queued: it waits
// for the work that is queued on its stream. In a capture, it becomes a node of the graph, and each replay interprets it.
//
// Rule: a kernel of Triton gets addresses, and computes on its own which of them it reads and writes. So the exact
// operands are known only after the kernel has run. The sanitizer then checks them as if the kernel began. A capture must
// know them before: while the sanitizer runs, the interpreter rehearses the kernel at the capture. A rehearsed kernel
// loads what its memory holds then, and stores nothing. If it loads addresses or loops over what it loads, it may fail,
// because the memory of a capture holds no results yet; then the node names no operands.
namespace at::openreg {

// Elements of `size` bytes, from `data` on, `step` bytes apart.
struct InterpretedAccess {
  const void* data;
  int64_t size;
  int64_t count;
  int64_t step;
  unsigned access; // orAccessRead or orAccessWrite
};

enum class Interpretation {
  Computes,
  Tells,     // computes, and returns what it has read and written
  Rehearses, // computes nothing, and returns what it would read and write
};
using Interpreted = std::function<std::vector<InterpretedAccess>(Interpretation)>;

// Computes a kernel on the current stream of `device`. `name` must be valid until the process ends. `whole`: the memory
// of the tensors that the kernel gets, by which dry execution decides whether the kernel is skipped. In a capture
// `compute` does not compute, and the result is true: the graph keeps a copy of it, which may be called and destroyed on
// any thread.
OPENREG_API bool run_interpreted(
    c10::DeviceIndex device, const char* name, const std::vector<InterpretedAccess>& whole, const Interpreted& compute);

} // namespace at::openreg
