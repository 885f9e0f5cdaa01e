#pragma once

#include <cstdint>
#include <iterator>
#include <map>

// The container in which device memory and pinned memory keep their allocations.
namespace openreg {

// Allocations by their first address. Each has a `size` in bytes.
template <typename Allocation>
using AllocationMap = std::map<uintptr_t, Allocation>;

// The last allocation that begins at `address` or before it; NULL if there is none. The caller holds a lock.
template <typename Allocation>
const Allocation* findBefore(const AllocationMap<Allocation>& allocations, uintptr_t address) {
  const auto after = allocations.upper_bound(address);
  return after == allocations.begin() ? nullptr : &std::prev(after)->second;
}

// The allocation that contains `address`; NULL if there is none. The caller holds a lock.
template <typename Allocation>
const Allocation* findContaining(const AllocationMap<Allocation>& allocations, uintptr_t address) {
  const Allocation* const before = findBefore(allocations, address);
  return before && address - before->begin < before->size ? before : nullptr;
}

} // namespace openreg
