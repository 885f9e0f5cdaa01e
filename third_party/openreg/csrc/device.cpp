#include "device.h"

#include <algorithm>
#include <utility>

#include "error.h"
#include "hooks.h"
#include "runtime.h"

namespace openreg {
namespace {

thread_local int current = 0;

// Returns an error if no device is visible, or if a variable has a bad value. The functions that call it need the list
// of devices but not the simulator. They work in a forked child too.
orError_t requireAnyDevice() {
  if (!environment().error.empty()) {
    return fail(orErrorInvalidConfiguration, "%s", environment().error.c_str());
  }
  if (environment().visible.empty()) {
    return fail(
        orErrorNoDevice,
        "no device is visible: %s hides all %d",
        environment().visibleVariable,
        environment().deviceCount);
  }
  return orSuccess;
}

} // namespace

int currentDevice() {
  return current;
}

int exchangeDevice(int device) {
  return std::exchange(current, device);
}

orError_t requireDevice(const char* parameter, int device) {
  const int count = static_cast<int>(environment().visible.size());
  if (device >= 0 && device < count) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidDevice,
      "%s is %d, but must be from 0 to %d; OPENREG_DEVICE_COUNT and %s give the number of devices",
      parameter,
      device,
      count - 1,
      environment().visibleVariable);
}

} // namespace openreg

using namespace openreg;

orError_t orGetDeviceCount(int* count) {
  enter(__func__);
  if (count == nullptr) {
    return fail(orErrorInvalidValue, "count is NULL; pass the address of an int");
  }
  if (!environment().error.empty()) {
    return fail(orErrorInvalidConfiguration, "%s", environment().error.c_str());
  }
  if (!isStarted()) { // if a driver cannot start, it cannot count its devices either
    if (orError_t error = checkCall(kAtStart, -1); error != orSuccess) {
      return error;
    }
  }
  *count = static_cast<int>(environment().visible.size());
  return orSuccess;
}

orError_t orSetDevice(int device) {
  enter(__func__);
  if (orError_t error = requireAnyDevice(); error != orSuccess) {
    return error;
  }
  if (orError_t error = requireDevice("device", device); error != orSuccess) {
    return error;
  }
  current = device;
  return orSuccess;
}

orError_t orGetDevice(int* device) {
  enter(__func__);
  if (device == nullptr) {
    return fail(orErrorInvalidValue, "device is NULL; pass the address of an int");
  }
  if (orError_t error = requireAnyDevice(); error != orSuccess) {
    return error;
  }
  *device = current;
  return orSuccess;
}

orError_t orGetDeviceProperties(orDeviceProp* prop, int device) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (prop == nullptr) {
      return fail(orErrorInvalidValue, "prop is NULL; pass the address of an orDeviceProp");
    }
    if (orError_t error = requireDevice("device", device); error != orSuccess) {
      return error;
    }
    *prop = environment().description.properties;
    prop->totalGlobalMem = environment().deviceMemory;
    const int index = environment().visible[device];
    std::ranges::copy(deviceUuid(index), prop->uuid.bytes);
    prop->pciBusID = index + 1;
    return orSuccess;
  });
}

orError_t orDeviceCanAccessPeer(int* canAccess, int device, int peer) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (canAccess == nullptr) {
      return fail(orErrorInvalidValue, "canAccess is NULL; pass the address of an int");
    }
    if (orError_t error = requireDevice("device", device); error != orSuccess) {
      return error;
    }
    if (orError_t error = requireDevice("peer", peer); error != orSuccess) {
      return error;
    }
    *canAccess = device != peer && environment().description.peerAccess;
    return orSuccess;
  });
}
