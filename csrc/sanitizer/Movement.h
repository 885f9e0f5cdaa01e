#pragma once

#include <ATen/record_function.h>

#include <memory>

// Operators that only move elements, such as cat, index and scatter_. The elements of the result that are unwritten are found
// by the same operator: it runs once more, on CPU tensors of booleans that say which elements of its operands are unwritten.
namespace c10::openreg::sanitizer {

// To be called when an operator with moves_elements() begins. Sets exchange_moved_elements() until the result is destroyed.
// Null: no operand has unwritten elements; or the indices are not known, because the operator is queued; or the answer
// would take long.
std::unique_ptr<at::ObserverContext> begin_movement(const at::RecordFunction& fn, const OperatorName& name);

} // namespace c10::openreg::sanitizer
