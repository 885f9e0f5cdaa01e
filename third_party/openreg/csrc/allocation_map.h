#pragma once

#include <cstdint>
#include <map>

namespace openreg {

// Allocations by their first address. Each has a `size` in bytes.
template <typename Allocation>
using AllocationMap = std::map<uintptr_t, Allocation>;

// The allocation that contains `address`; NULL if there is none. Not synchronised.
template <typename Allocation>
const Allocation* findContaining(const AllocationMap<Allocation>& allocations, uintptr_t address) {
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) {
    return nullptr;
  }
  --it;
  return address - it->first < it->second.size ? &it->second : nullptr;
}

} // namespace openreg
