#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "openreg.h"
#include "openreg_model.h"

// The environment variables OPENREG_DEVICE_COUNT, OPENREG_DEVICE_MEMORY, OPENREG_VISIBLE_DEVICES, OPENREG_EXECUTION and
// OPENREG_CHAOS_SEED: their values, checked.
// LEFT OUT OF A NEW BACKEND START: the face cuda
// After orReadCudaVariables() also CUDA_VISIBLE_DEVICES.
// LEFT OUT OF A NEW BACKEND END
namespace openreg {

constexpr int kMaxDevices = 64;

// The model of the devices if the program chose none.
const orDeviceModel& ownModel();

// The settings of the environment. They are read once, and again after orSetDeviceModel(). As with
// CUDA_VISIBLE_DEVICES, it has no effect if a program changes the variables after that.
struct Environment {
  orDeviceModel model{};
  int deviceCount = 0;                                     // how many devices exist
  std::vector<int> visible;                                // the indices of the devices that this process may use
  const char* visibleVariable = "OPENREG_VISIBLE_DEVICES"; // the variable that chose `visible`
  size_t deviceMemory = 0;                                 // bytes per device
  orExecutionMode executionMode = orExecutionInline;
  uint64_t chaosSeed = 0;
  std::string error; // not empty: a variable has a bad value. Names the variable and the values that are allowed
};

// The variables take precedence over the numbers of `model`.
Environment readEnvironment(const orDeviceModel& model);

// Whether a device may have so many bytes of memory.
bool isDeviceMemory(size_t bytes);

// The UUID of a device. `index` counts all devices, not only the visible ones, so the UUID is the same in every
// process.
std::array<unsigned char, 16> deviceUuid(int index);

} // namespace openreg
