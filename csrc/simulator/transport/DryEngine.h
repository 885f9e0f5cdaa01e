#pragma once

#include <vector>

#include "runtime/OpenRegException.h"

namespace c10d::openreg {

// From now on, no other process takes part in the collectives of this process, whatever the size of a group: dry
// execution answers them. Lasts until the process ends. `ranks_of_host`: so many ranks of the world share a host.
OPENREG_API void start_dry_world(int ranks_of_host);

// The ranks that the next group has, as ranks of the world. Without this call they are 0, 1, 2 and so on.
OPENREG_API void set_ranks_of_next_group(std::vector<int> ranks);

} // namespace c10d::openreg
