#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>

// Operators that only move elements, such as cat, index and scatter_. To find the unwritten elements of a result, the
// same operator runs once more on the CPU. Its operands are then tensors of booleans, which say for each element
// whether it is unwritten.
namespace c10::openreg::sanitizer {

// Whether the tensor's elements lie in one storage, at the distances that its strides tell.
bool is_strided(const at::Tensor& tensor);

// To be called when an operator with moves_elements() begins. Passes the unwritten elements of the operator's result to
// exchange_moved_elements(); the destructor of the returned object restores the previous value. Returns null if no
// operand has unwritten elements. The unwritten elements of the result are not known if queued work that may change the
// indices has not run within a second, or if the answer would take long.
std::unique_ptr<at::ObserverContext> begin_movement(const at::RecordFunction& fn, const c10::OperatorName& name);

} // namespace c10::openreg::sanitizer
