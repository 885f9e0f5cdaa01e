#pragma once

#include <new>

#include "environment.h"
#include "error.h"
#include "openreg.h"

// The start of the simulator, which the first call that needs a device causes, and the child processes that were forked
// after the start.
namespace openreg {

// What the client set with orSetDeviceIdentity. No member is set if there was no call.
const orDeviceIdentity& identity();

// The settings of the environment, which the first call reads. Maps no memory, and works in a forked child.
const Environment& environment();

// Starts the simulator, unless it has started: reserves the windows and installs the SIGSEGV handler. Returns
// orErrorInvalidConfiguration, orErrorNoDevice, orErrorMemoryAllocation (no address space; the next call tries again),
// orErrorInitializationError in a child that was forked after the start, or an error of the interceptor (hooks.h). Once it has
// succeeded, a call takes a few nanoseconds.
orError_t start();

// Sets what the devices are like. Returns false, and changes nothing, if the simulator has started.
bool describeDevices(const DeviceDescription& description);

// Whether start() has succeeded in this process.
bool isStarted();

// True in a process that was forked, directly or through other forks, from one in which the simulator had started. Such
// a process has no device memory and no threads of the device. It must not wait for a lock, because another thread may
// have held the lock at the fork. So functions that release something do nothing there, and all other functions that
// need a device fail in start().
bool isInBadFork();

// Runs the body of a public function that needs a device: starts the simulator first, and turns std::bad_alloc into an
// error.
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

// As deviceCall, for functions that release something.
template <typename Body>
orError_t releaseCall(const char* name, Body&& body) {
  return isInBadFork() ? orSuccess : deviceCall(name, body);
}

} // namespace openreg
