#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: INIT RULES
// The init check: a kernel reads bytes that nobody has written since their block was allocated.
//
// Rules: a copy of such bytes is no error, and makes its destination unwritten too, element by element (as Valgrind's
// memcheck does). A copy to pageable host memory is a read, because the host's bytes have no such state. The bytes that
// an operator reads of an operand may depend on data, or be a part of it. Such operators are in the table in
// InitCheck.cpp. It says which of their operands (indices, masks) are read completely; the others are not checked.
// LITERALINCLUDE END: INIT RULES
namespace c10::openreg::sanitizer {

// A kernel, copy or fill begins. Adds a report for each operand whose unwritten bytes it computes with. `forgets`: these
// bytes count as written from now on, so that they are reported only once.
void check_reads(
    Shadow& shadow, const char* name, const std::vector<Access>& accesses, bool forgets, std::vector<Report>& found);

// The argument on which the operands that the operator reads depend: "beta" of beta * the first operand + a product,
// which does not read the first operand if beta=0, "is_causal" of attention, and "is_first_step" of SGD. Null: there is
// none.
const char* deciding_argument(std::string_view name);

// Sets the deciding argument of the operator that the calling thread is in. nullopt: it is not known. Returns the
// previous one. A number that is no integer counts as 1, and 0.0 as 0.
std::optional<int64_t> exchange_deciding_argument(std::optional<int64_t> value);

// Whether the operator only moves elements of its operands (Movement.h).
bool moves_elements(std::string_view name);

// Which elements of the result of an operator that only moves elements are unwritten.
struct MovedElements {
  std::string name;
  SmallVector<int64_t, 4> shape;
  SmallVector<int64_t, 4> strides; // in elements; of the result if it is new
  std::vector<bool> unwritten;     // the elements in the order of their indices
};

// Sets the elements for the operator that the calling thread is in. null: all its elements count as written. Returns the
// previous ones.
const MovedElements* exchange_moved_elements(const MovedElements* elements);

// A kernel, copy or fill has told all operands that it writes.
void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses);

// A kernel does not tell its operands. It may have written all memory, so all bytes count as written.
void forget_unwritten(Shadow& shadow);

} // namespace c10::openreg::sanitizer
