#pragma once

#include "openreg.h"

namespace openreg {

// The calling thread's device: a number below the count of visible devices.
int currentDevice();

// Makes `device`, which exists, the calling thread's and returns the one before.
int exchangeDevice(int device);

// orErrorInvalidDevice if there is no such device; `parameter` is the name of what the caller passed.
orError_t requireDevice(const char* parameter, int device);

} // namespace openreg
