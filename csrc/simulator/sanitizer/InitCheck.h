#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/sanitizer/Shadow.h"

// The init check: a kernel reads bytes that nobody has written since their block was allocated.
//
// Rules: a copy of such bytes is no error, and makes its destination unwritten too, element by element (as Valgrind's
// memcheck does). A copy to pageable host memory is a read, because the host's bytes have no such state. Some operators
// read only a part of an operand, and the part may depend on data. Such operators are in the table in InitCheck.cpp.
// The table says which of their operands (indices, masks) are read completely; their other operands are not checked.
namespace c10::openreg::sanitizer {

// A kernel, copy or fill begins. Adds a report for each operand whose unwritten bytes it computes with. `forgets`:
// these bytes count as written from now on, so that they are reported only once.
void check_reads(
    Shadow& shadow, const char* name, const std::vector<Access>& accesses, bool forgets, std::vector<Report>& found);

// The host or a kernel computes with the bytes of an access to this block. Adds a report if some of them are unwritten.
void check_read(ShadowBlock& block, const Access& access, bool forgets, std::vector<Report>& found);

// Whether the operator computes with all bytes of an operand. `writes`: of an operand that it also writes.
bool computes_with_all_bytes(std::string_view name, bool writes);

// The name of the argument that decides which operands the operator reads. It is "beta" for addmm and its relatives,
// which do not read their first operand if beta=0; "is_causal" for attention; "is_first_step" for SGD. Null: no
// argument decides it.
const char* deciding_argument(std::string_view name);

// Sets the value of the deciding argument, for the operator that the calling thread is in. nullopt: the value is not
// known. Returns the previous value. A floating-point number counts as 0 if it is 0.0, and otherwise as 1.
std::optional<int64_t> exchange_deciding_argument(std::optional<int64_t> value);

// Whether the operator only moves elements of its operands (Movement.h).
bool moves_elements(std::string_view name);

// Which elements of the result of an operator that only moves elements are unwritten.
struct MovedElements {
  std::string name;
  SmallVector<int64_t, 4> shape;
  SmallVector<int64_t, 4> strides;   // in elements; used if the operator makes a new result
  std::vector<bool> unwritten;       // the elements in the order of their indices; empty: all count as written
  SmallVector<uintptr_t, 2> indices; // the addresses of the indices and masks, which are read completely
  // True: `unwritten` could not be computed, but the operator adds to its first operand. So the unwritten elements of
  // the first operand stay unwritten.
  bool keeps_first = false;
};

// Sets these elements for the operator that the calling thread is in. Null: all elements of the result count as
// written. Returns the previous value.
const MovedElements* exchange_moved_elements(const MovedElements* elements);

// A kernel, copy or fill has named all operands that it writes. Notes which of their bytes are written now, and which
// are copies of unwritten bytes.
void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses);

// A kernel does not name its operands. It may have written all memory, so all bytes count as written.
void forget_unwritten(Shadow& shadow);

} // namespace c10::openreg::sanitizer
