#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace openreg {

struct PinnedAllocation {
  uintptr_t begin;
  size_t size; // bytes asked for
  int device;  // current when it was allocated
};

// The pinned allocation that contains `address`.
std::optional<PinnedAllocation> findPinned(uintptr_t address);

} // namespace openreg
