#pragma once

#include <cstddef>
#include <cstdint>

#include "openreg.h"

// Finds out which memory a pointer points to: orPointerGetAttributes, and the checks of copies.
namespace openreg {

// The memory that a pointer points to.
struct Place {
  orMemoryType type; // in a device's window always device memory, also if nothing is allocated at the address
  int device;        // -1 for unregistered memory
  uintptr_t begin;   // the start of the allocation; 0 if the pointer lies in none
  size_t size;       // bytes of the allocation
  bool hostAccessible;
};

Place locate(const void* ptr);

} // namespace openreg
