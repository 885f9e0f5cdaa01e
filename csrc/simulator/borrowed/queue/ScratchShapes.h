#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "simulator/borrowed/queue/Operands.h"

// The shapes of the results of a captured call, if no meta kernel gives them: some operators have none, and some of
// PyTorch's know less than the kernels (index_fill_() with a number of the CPU). The CPU's kernel tells the shapes: it
// computes the call once, on host memory of its own. The numbers that it gets are not those of the call, which in a
// capture nobody knows, so this is for operators whose shapes do not depend on them.
namespace at::openreg {

// Replaces the operands in `operands.for_meta` by the results, as meta tensors, and resizes the outputs there. Throws the
// error of the CPU's kernel.
void compute_shapes(const c10::OperatorHandle& op, QueuedOperands& operands);

// What the indices of a sparse scratch tensor say. If a kernel gives results of other sizes for other indices, the sizes
// depend on numbers that in a capture nobody knows.
enum class ScratchIndices {
  Same,   // all elements have one place; a compressed tensor has no element
  Spread, // the elements have different places, as far as there are so many
};

// The results of the kernel of `key` on scratch tensors.
struct ScratchResults {
  torch::jit::Stack results;
  bool refer = false; // all results lie in the memory of the operands: the call needs no kernel
};
ScratchResults compute_on_scratch(
    const c10::OperatorHandle& op, const QueuedOperands& operands, c10::DispatchKey key, ScratchIndices indices);

} // namespace at::openreg
