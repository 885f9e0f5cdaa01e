#pragma once

#include <vector>

#include "simulator/sanitizer/Shadow.h"

// LITERALINCLUDE START: RACE RULES
// The race check. A race is a pair of accesses to the same byte, at least one of them a write, by two streams or by a
// stream and the host, if neither access is ordered before the other. An *actor* is a stream or the host; the vector
// clocks of Clocks.h say which access of which actor is ordered before which other one.
//
// Rules: the order in the program decides, and not the times of a run. So a race is found in every execution mode, even
// if nothing runs at the same time. Work that was stopped has no accesses. An access is kept until a later access
// covers its bytes and can stand for it in later comparisons.
// LITERALINCLUDE END: RACE RULES
namespace c10::openreg::sanitizer {

// Compares `access`, which happens now, with the earlier accesses to the block. Adds a report for each race.
void find_races(const ShadowBlock& block, const Access& access, const Clocks& clocks, std::vector<Report>& found);

// Keeps `access`, which happens now, for later comparisons.
void keep_access(ShadowBlock& block, Access access, const Clocks& clocks);

// The report about two nodes of a graph that it does not order.
Report make_race_in_graph(const ShadowBlock& block, const Access& now, const Access& before);

// Whether a queued access may still write bytes of `extent`, as far as the host knows.
bool may_be_written(const ShadowBlock& block, const Extent& extent, const Clocks& clocks);

// The block is freed: the next allocation on its stream may reuse it. Returns the accesses of other streams that are
// not ordered before the free. Leaves out the streams that record_stream() was called with.
std::vector<Access> find_users(const ShadowBlock& block, const Access& the_free, const Clocks& clocks);

// The report about `user`, an access that find_users() returned. To be called only if the actor of `the_free` has
// still not waited for this access: the function does not check that.
Report make_early_free(const Access& the_free, const Access& user, size_t size, Site allocated);

} // namespace c10::openreg::sanitizer
