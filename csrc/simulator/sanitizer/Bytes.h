#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "simulator/sanitizer/Extent.h"

namespace c10::openreg::sanitizer {

// A set of addresses of bytes. The set is kept as ranges with gaps between them.
class Bytes {
 public:
  void add(uintptr_t begin, uintptr_t end);
  void remove(uintptr_t begin, uintptr_t end);
  void add(const Extent& extent);
  void remove(const Extent& extent);

  bool empty() const {
    return ranges_.empty();
  }
  // Whether a byte of [begin, end) is in the set.
  bool overlaps(uintptr_t begin, uintptr_t end) const;
  // How many bytes of the extent, or of [begin, end), are in the set.
  size_t count(const Extent& extent) const;
  size_t count(uintptr_t begin, uintptr_t end) const;

  // Calls fn(begin, end) for each part of [begin, end) that is in the set, the last one first.
  template <class Fn>
  void for_each_in(uintptr_t begin, uintptr_t end, const Fn& fn) const {
    auto next = ranges_.lower_bound(end);
    while (next != ranges_.begin() && (--next)->second > begin) {
      fn(std::max(begin, next->first), std::min(end, next->second));
    }
  }

  // Calls fn(begin, end) for each range.
  template <class Fn>
  void for_each(const Fn& fn) const {
    for (const auto& [begin, end] : ranges_) {
      fn(begin, end);
    }
  }

 private:
  std::map<uintptr_t, uintptr_t> ranges_; // begin -> end
};

} // namespace c10::openreg::sanitizer
