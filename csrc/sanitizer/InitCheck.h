#pragma once

#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: INIT RULES
// The init check: a kernel reads bytes that nobody has written since their block was allocated.
//
// Rules: a copy of such bytes is no error, and makes its destination unwritten too (as Valgrind's memcheck does). The
// bytes that an operator reads may depend on data. Such operators are in the table in InitCheck.cpp, and their reads
// are not checked.
// LITERALINCLUDE END: INIT RULES
namespace c10::openreg::sanitizer {

// A kernel, copy or fill begins. Adds a report for each operand whose unwritten bytes it computes with.
void check_reads(Shadow& shadow, const char* name, const std::vector<Access>& accesses, std::vector<Report>& found);

// A kernel, copy or fill has told all operands that it writes.
void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses);

// A kernel does not tell its operands. It may have written all memory, so all bytes count as written.
void forget_unwritten(Shadow& shadow);

} // namespace c10::openreg::sanitizer
