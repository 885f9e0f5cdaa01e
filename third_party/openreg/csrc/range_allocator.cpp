#include "range_allocator.h"

#include <iterator>

namespace openreg {

RangeAllocator::RangeAllocator(uintptr_t begin, size_t size) {
  insert(begin, size);
}

std::optional<uintptr_t> RangeAllocator::take(size_t size, size_t alignment) {
  for (auto it = bySize_.lower_bound({size, 0}); it != bySize_.end(); ++it) {
    const auto [rangeSize, rangeBegin] = *it;
    const uintptr_t begin = (rangeBegin + alignment - 1) / alignment * alignment;
    const size_t before = begin - rangeBegin;
    if (before + size > rangeSize) {
      continue;
    }
    erase(rangeBegin, rangeSize);
    if (before != 0) {
      insert(rangeBegin, before);
    }
    if (before + size != rangeSize) {
      insert(begin + size, rangeSize - before - size);
    }
    return begin;
  }
  return std::nullopt;
}

void RangeAllocator::give(uintptr_t begin, size_t size) {
  auto next = byAddress_.upper_bound(begin);
  if (next != byAddress_.begin()) {
    const auto [previousBegin, previousSize] = *std::prev(next);
    if (previousBegin + previousSize == begin) {
      erase(previousBegin, previousSize);
      begin = previousBegin;
      size += previousSize;
    }
  }
  if (next != byAddress_.end() && begin + size == next->first) {
    const size_t nextSize = next->second;
    erase(next->first, nextSize);
    size += nextSize;
  }
  insert(begin, size);
}

void RangeAllocator::insert(uintptr_t begin, size_t size) {
  byAddress_.emplace(begin, size);
  bySize_.emplace(size, begin);
}

void RangeAllocator::erase(uintptr_t begin, size_t size) {
  byAddress_.erase(begin);
  bySize_.erase({size, begin});
}

} // namespace openreg
