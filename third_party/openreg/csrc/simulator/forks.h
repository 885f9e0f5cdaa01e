#pragma once

#include <atomic>

namespace openreg {

// Whether the schedule is `late`, if the mode is orExecutionChaos: then a parent does as little as possible before the
// process that it has forked is done.
inline std::atomic<bool> parentsWait{false};

} // namespace openreg
