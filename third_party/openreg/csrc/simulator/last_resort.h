#pragma once

namespace openreg {

// Work is held (hold.cpp), and none was before. Watches whether the process makes progress. To be called with the
// scheduler's lock.
void watchForLastResort();

} // namespace openreg
