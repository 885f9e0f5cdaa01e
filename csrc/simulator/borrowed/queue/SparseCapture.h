#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "simulator/borrowed/ResultPlaces.h"

// Operators on sparse tensors in a capture. A sparse operand is the tensors of its indices and of its values: a node of
// the graph keeps their addresses, and each replay reads what then is there. So a replay takes other values, and other
// indices of as many elements.
//
// CUDA captures an operator if the host needs no number of the device. The number of elements of a result is such a
// number if it depends on the indices, so coalesce() is refused. To see whether it does, the kernel of the CPU is asked
// twice for the shapes, with other indices (ScratchShapes.h).
namespace at::openreg {

// How a call runs that need not run inline.
enum class Way {
  Queued,        // the results have replaced the arguments on the stack
  OnThread,      // the calling thread runs the kernel, which a capture refuses
  WithoutKernel, // the call only asks for sizes, or its results are made of the tensors of the arguments
};

// Captures `op` in the capture of the current stream of `device`, whose kernel on the CPU is the one of `key`. Raises
// CUDA's error if CUDA would wait. The stack is as before unless the call is queued.
Way capture_sparse(
    const c10::OperatorHandle& op,
    c10::DispatchKey key,
    c10::DeviceIndex device,
    torch::jit::Stack& stack,
    CallKey call_key);

} // namespace at::openreg
