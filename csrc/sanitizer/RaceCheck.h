#pragma once

#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: RACE RULES
// The race check. Two accesses to one byte, at least one of them a write, by two streams, or by a stream and the host, of
// which neither is before the other (Clocks.h).
//
// Rules: the program's order decides, so a race is found in every execution mode, also where nothing runs at the same
// time. An access is kept until another one that is ordered after it covers its bytes.
// LITERALINCLUDE END: RACE RULES
namespace c10::openreg::sanitizer {

// Compares `access`, which is happening now, with the accesses of the block, and keeps it. Adds what it finds.
void check_access(Block& block, Access access, const Clocks& clocks, std::vector<Report>& found);

// The block goes back to its stream, which may give it to others with the next allocation. Returns the accesses of other
// streams that are not before this.
std::vector<Access> find_users(const Block& block, const Access& free, const Clocks& clocks);

// The report about one of these, if the stream has not waited for it by now.
Report make_early_free(const Access& free, const Access& user, size_t size, Site allocated);

} // namespace c10::openreg::sanitizer
