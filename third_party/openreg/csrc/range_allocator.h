#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

// Divides an address range into allocations; the windows of device memory use it.
namespace openreg {

// Hands out ranges of addresses by best fit, and merges free neighbours. It never reads or writes the memory at the
// addresses. The caller holds a lock.
class RangeAllocator {
 public:
  RangeAllocator(uintptr_t begin, size_t size);

  // Returns nullopt if no free range has `size` bytes at a multiple of `alignment`.
  std::optional<uintptr_t> take(size_t size, size_t alignment);
  void give(uintptr_t begin, size_t size);

 private:
  void insert(uintptr_t begin, size_t size);
  void erase(uintptr_t begin, size_t size);

  std::map<uintptr_t, size_t> byAddress_;
  std::set<std::pair<size_t, uintptr_t>> bySize_;
};

} // namespace openreg
