#pragma once

#include "openreg.h"

// The visible devices, and the current device of each thread.
namespace openreg {

// The calling thread's current device: a number below the count of visible devices.
int currentDevice();

// Makes `device`, which must exist, the calling thread's current device, and returns the previous one.
int exchangeDevice(int device);

// Returns orErrorInvalidDevice if the device does not exist. `parameter`: the name of the caller's parameter, for the
// message.
orError_t requireDevice(const char* parameter, int device);

} // namespace openreg
