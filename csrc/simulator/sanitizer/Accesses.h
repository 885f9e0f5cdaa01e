#pragma once

#include <openreg_activity.h>

#include <vector>

#include "simulator/sanitizer/Report.h"

// The operands of a kernel, as accesses to memory.
namespace c10::openreg::sanitizer {

// An orOperandFn_t whose context is a std::vector<Access>: adds the operand, unless it has no bytes.
void collect_operand(const orOperand* operand, void* context);

// What an activity reads and writes. The vector belongs to the calling thread, and is valid until this thread calls
// collect() again.
std::vector<Access>& collect(const orActivity& activity);

} // namespace c10::openreg::sanitizer
