#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "openreg.h"

namespace openreg {

// What the environment asks for. It is read once: a program that changes the variables later changes nothing, as with
// CUDA_VISIBLE_DEVICES.
struct Environment {
  int deviceCount = 2;                    // devices that exist
  int visibleCount = 2;                   // devices that this process may use, numbered from 0
  size_t deviceMemory = size_t{16} << 30; // bytes a device
  orExecutionMode executionMode = orExecutionInline;
  uint64_t chaosSeed = 0;
  std::string error; // not empty: a variable has a bad value, and this says which and what is allowed
};

Environment readEnvironment();

} // namespace openreg
