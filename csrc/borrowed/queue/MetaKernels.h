#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

// LITERALINCLUDE START: META KERNEL RULE
// Shapes and dtypes of an operator's results from those of its operands, without computing anything.
//
// Rule: meta kernels are called here, never through the dispatcher. `import torch` puts Python functions over most of
// PyTorch's C++ ones, which take the GIL and 50 us where these take less than one.
// LITERALINCLUDE END: META KERNEL RULE
namespace at::openreg {

// Null: the operator has no meta kernel in C++.
const c10::KernelFunction* meta_kernel(const c10::OperatorName& name);

} // namespace at::openreg
