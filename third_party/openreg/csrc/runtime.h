#pragma once

#include <new>

#include "environment.h"
#include "error.h"
#include "openreg.h"

namespace openreg {

// The environment, read at the first call. Maps no memory, works in a forked child.
const Environment& environment();

// Starts the simulator if it has not been started: reserves the windows, installs the fault handler. Fails with
// orErrorInvalidConfiguration, orErrorNoDevice, orErrorMemoryAllocation (address space; the next call tries again) or,
// in a child forked after the start, orErrorInitializationError. A few nanoseconds once it has succeeded.
orError_t start();

// Whether orReadCudaVariables was called.
bool isCalledCuda();

// Whether start() has succeeded in this process.
bool isStarted();

// True in a child that was forked after the simulator started (in it or in an ancestor). Such a process has none of the
// device's memory and none of its threads, and may not wait for a lock that another thread held when it was forked. So
// functions that give something back do nothing there, and all others that need a device fail in start().
bool isInBadFork();

// The body of a public function that needs a device.
template <typename Body>
orError_t deviceCall(const char* name, Body&& body) {
  enter(name);
  try {
    const orError_t error = start();
    return error == orSuccess ? body() : error;
  } catch (const std::bad_alloc&) {
    return fail(orErrorMemoryAllocation, "the host has no memory left for the call's own bookkeeping");
  }
}

// As deviceCall, for functions that give something back.
template <typename Body>
orError_t releaseCall(const char* name, Body&& body) {
  return isInBadFork() ? orSuccess : deviceCall(name, body);
}

} // namespace openreg
