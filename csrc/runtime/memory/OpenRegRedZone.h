#pragma once

#include <atomic>
#include <cstddef>

#include "../OpenRegException.h"

namespace c10::openreg {

// Bytes that the device allocator leaves unused behind every block that it hands out, for whoever looks whether a kernel
// writes past the end. 0, the default: none.
OPENREG_API extern std::atomic<size_t> red_zone;

} // namespace c10::openreg
