#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <optional>

#include "runtime/OpenRegException.h"

namespace at::openreg {

// The arguments or the results of a call, as meta tensors.
using MetaStack = torch::jit::Stack;

// The shapes of the results of a call that is skipped.
struct ResultShapes {
  MetaStack results;
  MetaStack arguments; // an out= operator has resized its outputs
};

// Asks the meta kernels. `is_assumed`: if the shapes depend on the values of operands, returns assumed shapes. Otherwise
// the result is nullopt in this case. Throws the error of a call whose operands do not fit.
std::optional<ResultShapes> result_shapes(
    const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, bool is_assumed);

// Sets the function that finds the meta kernel of an operator that gives its results the strides of this device; null:
// there is none. PyTorch's own meta kernels are asked otherwise. Must be called while the library loads.
using FindMetaKernel = const c10::KernelFunction* (*)(const c10::OperatorName& name);
void set_dry_meta_kernels(FindMetaKernel find);

} // namespace at::openreg
