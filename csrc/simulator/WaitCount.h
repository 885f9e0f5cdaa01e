#pragma once

#include <cstdint>

#include "runtime/OpenRegException.h"

// How often the host waits for the device: in a call of the device library, in a blocking copy, and in an operator
// whose result the host reads.
namespace c10::openreg {

// Begins to count, once for the process. Does not start the devices.
OPENREG_API void count_waits();

// The waits since count_waits(), of all threads.
OPENREG_API uint64_t wait_count();

} // namespace c10::openreg
