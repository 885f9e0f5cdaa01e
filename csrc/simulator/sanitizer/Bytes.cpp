#include "simulator/sanitizer/Bytes.h"

namespace c10::openreg::sanitizer {

void Bytes::add(uintptr_t begin, uintptr_t end) {
  if (begin >= end) {
    return;
  }
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_.emplace_hint(next, begin, end);
}

void Bytes::remove(uintptr_t begin, uintptr_t end) {
  if (ranges_.empty() || begin >= end) {
    return;
  }
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second > begin) {
    --next;
  }
  while (next != ranges_.end() && next->first < end) {
    const auto [from, to] = *next;
    next = ranges_.erase(next);
    if (from < begin) {
      ranges_.emplace(from, begin);
    }
    if (to > end) {
      ranges_.emplace(end, to);
    }
  }
}

void Bytes::add(const Extent& extent) {
  extent.for_each_run([&](uintptr_t begin, uintptr_t end) { add(begin, end); });
}

void Bytes::remove(const Extent& extent) {
  if (!ranges_.empty()) {
    extent.for_each_run([&](uintptr_t begin, uintptr_t end) { remove(begin, end); });
  }
}

bool Bytes::overlaps(uintptr_t begin, uintptr_t end) const {
  auto next = ranges_.lower_bound(end);
  return next != ranges_.begin() && std::prev(next)->second > begin;
}

size_t Bytes::count(uintptr_t begin, uintptr_t end) const {
  size_t bytes = 0;
  for_each_in(begin, end, [&](uintptr_t from, uintptr_t to) { bytes += to - from; });
  return bytes;
}

size_t Bytes::count(const Extent& extent) const {
  size_t bytes = 0;
  if (overlaps(extent.begin, extent.end)) {
    extent.for_each_run([&](uintptr_t begin, uintptr_t end) { bytes += count(begin, end); });
  }
  return bytes;
}

} // namespace c10::openreg::sanitizer
