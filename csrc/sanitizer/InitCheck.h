#pragma once

#include <string_view>
#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: INIT RULES
// The init check: a kernel reads bytes that nobody has written since their block was allocated.
//
// Rules: a copy of such bytes is no error, and makes its destination unwritten too, element by element (as Valgrind's
// memcheck does). The bytes that an operator reads may depend on data, or be a part of its operand. Such operators are in
// the table in InitCheck.cpp, and their reads are not checked.
// LITERALINCLUDE END: INIT RULES
namespace c10::openreg::sanitizer {

// A kernel, copy or fill begins. Adds a report for each operand whose unwritten bytes it computes with. `forgets`: these
// bytes count as written from now on, so that they are reported only once.
void check_reads(
    Shadow& shadow, const char* name, const std::vector<Access>& accesses, bool forgets, std::vector<Report>& found);

// Whether the operator computes beta * its first operand + a product.
bool has_beta(std::string_view name);

// Sets whether the operator that the calling thread is in has the argument beta=0: operators with has_beta() then do
// not read their first operand. Returns the previous value.
bool exchange_beta_is_zero(bool is_zero);

// A kernel, copy or fill has told all operands that it writes.
void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses);

// A kernel does not tell its operands. It may have written all memory, so all bytes count as written.
void forget_unwritten(Shadow& shadow);

} // namespace c10::openreg::sanitizer
