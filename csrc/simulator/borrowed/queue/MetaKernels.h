#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

// LITERALINCLUDE START: META KERNEL RULE
// Meta kernels: they find the shapes and dtypes of an operator's results from those of its operands, and compute no
// values.
//
// Rule: the queue gets a meta kernel from meta_kernel() and calls it directly, never through the dispatcher. `import
// torch` registers Python functions in place of most of PyTorch's C++ meta kernels. Such a Python function acquires the
// GIL, and a call takes 50 us. A call of the C++ meta kernel takes less than 1 us.
// LITERALINCLUDE END: META KERNEL RULE
namespace at::openreg {

// The meta kernel of an operator. Null: PyTorch has none in C++, or codegen.py leaves it out, for example because the
// operator is a factory.
const c10::KernelFunction* meta_kernel(const c10::OperatorName& name);

} // namespace at::openreg
