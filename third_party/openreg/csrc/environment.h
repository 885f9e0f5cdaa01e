#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "openreg.h"

// The environment variables OPENREG_DEVICE_COUNT, OPENREG_DEVICE_MEMORY, OPENREG_VISIBLE_DEVICES, OPENREG_EXECUTION and
// OPENREG_CHAOS_SEED: their values, checked. An orDeviceIdentity may add a variable that selects devices.
namespace openreg {

constexpr int kMaxDevices = 64;

// What the devices are like, if no environment variable says otherwise.
struct DeviceDescription {
  orDeviceProp properties; // `uuid` and `pciBusID` are ignored: each device has its own
  int deviceCount;
  bool peerAccess; // the result of orDeviceCanAccessPeer for two devices
};
const DeviceDescription& ownDevices();

// The settings of the environment. They are read once, and again after describeDevices(). As with
// CUDA_VISIBLE_DEVICES, it has no effect if a program changes the variables after that.
struct Environment {
  DeviceDescription description{};
  int deviceCount = 0;                                     // how many devices exist
  std::vector<int> visible;                                // the indices of the devices that this process may use
  const char* visibleVariable = "OPENREG_VISIBLE_DEVICES"; // the variable that chose `visible`
  size_t deviceMemory = 0;                                 // bytes per device
  orExecutionMode executionMode = orExecutionInline;
  uint64_t chaosSeed = 0;
  std::string error; // not empty: a variable has a bad value. Names the variable and the values that are allowed
};

// The variables take precedence over the numbers of `description`.
Environment readEnvironment(const DeviceDescription& description, const orDeviceIdentity& identity);

// Whether a device may have so many bytes of memory.
bool isDeviceMemory(size_t bytes);

// The UUID of a device. `index` counts all devices, not only the visible ones, so the UUID is the same in every
// process.
std::array<unsigned char, 16> deviceUuid(int index);

} // namespace openreg
