#pragma once

#include <atomic>
#include <cstddef>

#include "runtime/OpenRegException.h"

namespace c10::openreg {

// The least number of unused bytes that the device allocator leaves behind the contents of every block, except behind
// the temporaries of queued kernels. The sanitizer fills them with a pattern, and so finds kernels that write past the
// end. 0, the default, leaves none.
OPENREG_API extern std::atomic<size_t> red_zone;

} // namespace c10::openreg
