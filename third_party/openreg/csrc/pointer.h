#pragma once

#include <cstddef>
#include <cstdint>

#include "openreg.h"

namespace openreg {

// Where a pointer leads.
struct Place {
  orMemoryType type; // by the address alone: device memory also where nothing is allocated
  int device;        // -1 for unregistered memory
  uintptr_t begin;   // of the allocation; 0 if the pointer lies in none
  size_t size;       // bytes of the allocation
  bool hostAccessible;
};

Place locate(const void* ptr);

} // namespace openreg
