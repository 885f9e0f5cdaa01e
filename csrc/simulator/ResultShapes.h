#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

// The shapes of the results of any operator of PyTorch, from its meta kernel. Dry execution and captures of graphs ask
// for them. Many of PyTorch's meta kernels are Python functions, so a call takes the GIL, and about 50 us.
namespace at::openreg {

// The arguments or the results of a call, as meta tensors.
using MetaStack = torch::jit::Stack;

struct ResultShapes {
  MetaStack results;
  MetaStack arguments; // an out= operator has resized its outputs
};

// The arguments as meta tensors. A meta tensor and a 0-dim CPU tensor, which is a number, stay as they are.
MetaStack meta_arguments(const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments);

// Asks the meta kernels. `is_computed`: the CPU's kernel will compute the results. Throws the error of a call whose operands do not fit, and the error of a meta kernel that would
// need the values of operands.
ResultShapes result_shapes(const c10::OperatorHandle& op, const MetaStack& arguments, bool is_computed);

// Sets the function that finds the meta kernel of an operator that gives its results the strides of this device; null:
// there is none. PyTorch's own meta kernels are asked otherwise. Must be called while the library loads.
using FindMetaKernel = const c10::KernelFunction* (*)(const c10::OperatorName& name);
void set_meta_kernels(FindMetaKernel find);

} // namespace at::openreg
