#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "openreg.h"

namespace openreg {

// What the environment asks for. It is read once: a program that changes the variables later changes nothing, as with
// CUDA_VISIBLE_DEVICES.
struct Environment {
  int deviceCount = 2;                                     // devices that exist
  std::vector<int> visible;                                // those that this process may use, by their own indices
  const char* visibleVariable = "OPENREG_VISIBLE_DEVICES"; // what chose them
  size_t deviceMemory = size_t{16} << 30;                  // bytes a device
  orExecutionMode executionMode = orExecutionInline;
  uint64_t chaosSeed = 0;
  std::string error; // not empty: a variable has a bad value, and this says which and what is allowed
};

// `cudaVariables`: CUDA_VISIBLE_DEVICES selects devices, too.
Environment readEnvironment(bool cudaVariables);

// The identity of a device, by its own index: the same in every process, whichever devices are visible.
std::array<unsigned char, 16> deviceUuid(int index);

} // namespace openreg
