#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

// Pinned host memory (orMallocHost, orHostRegister): memory of the host that kernels use through the same address.
namespace openreg {

struct PinnedAllocation {
  uintptr_t begin;
  size_t size;             // bytes that the caller asked for
  int device;              // the device that was current in orMallocHost or orHostRegister
  bool registered = false; // by orHostRegister: the program owns the memory
};

// The pinned allocation that contains `address`.
std::optional<PinnedAllocation> findPinned(uintptr_t address);

} // namespace openreg
