#pragma once

#include "distributed/CollectiveEngine.h"

namespace c10d::openreg {

// The engine that moves the bytes of a group: the group's engine only adds the faults of messages.
const CollectiveEngine& without_faults(const CollectiveEngine& engine);

} // namespace c10d::openreg
