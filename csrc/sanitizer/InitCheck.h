#pragma once

#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: INIT RULES
// The init check: a kernel reads bytes that nobody has written since their block was allocated.
//
// Rules: to copy such bytes is no error, and the copy is unwritten too (memcheck of Valgrind does the same). What an
// operator reads may depend on data; an operator of the table in InitCheck.cpp is therefore not asked what it reads.
// LITERALINCLUDE END: INIT RULES
namespace c10::openreg::sanitizer {

// A kernel, copy or fill begins: whether it computes with unwritten bytes.
void check_reads(Shadow& shadow, const char* name, const std::vector<Access>& accesses, std::vector<Report>& found);

// It has told all that it writes.
void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses);

// It does not tell what it does, and so may have written everything.
void forget_unwritten(Shadow& shadow);

} // namespace c10::openreg::sanitizer
