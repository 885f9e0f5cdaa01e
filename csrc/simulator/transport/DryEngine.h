#pragma once

#include "runtime/OpenRegException.h"

namespace c10d::openreg {

// From now on, no other process takes part in the collectives of this process, whatever the size of a group: dry
// execution answers them. Lasts until the process ends.
OPENREG_API void start_dry_world();

} // namespace c10d::openreg
