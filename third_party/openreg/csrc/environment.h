#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "openreg.h"
#include "openreg_model.h"

namespace openreg {

constexpr int kMaxDevices = 64;

// What the devices stand for when nobody chose a model.
const orDeviceModel& ownModel();

// What the environment asks for. It is read once: a program that changes the variables later changes nothing, as with
// CUDA_VISIBLE_DEVICES.
struct Environment {
  orDeviceModel model{};
  int deviceCount = 0;                                     // devices that exist
  std::vector<int> visible;                                // those that this process may use, by their own indices
  const char* visibleVariable = "OPENREG_VISIBLE_DEVICES"; // what chose them
  size_t deviceMemory = 0;                                 // bytes a device
  orExecutionMode executionMode = orExecutionInline;
  uint64_t chaosSeed = 0;
  std::string error; // not empty: a variable has a bad value, and this says which and what is allowed
};

// `cudaVariables`: CUDA_VISIBLE_DEVICES selects devices, too. The variables win over the numbers of `model`.
Environment readEnvironment(bool cudaVariables, const orDeviceModel& model);

// Whether a device may have this much memory.
bool isDeviceMemory(size_t bytes);

// The identity of a device, by its own index: the same in every process, whichever devices are visible.
std::array<unsigned char, 16> deviceUuid(int index);

} // namespace openreg
