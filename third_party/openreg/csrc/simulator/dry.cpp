#include <openreg_dry.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "hooks.h"
#include "runtime.h"

// What the bytes of device memory contain in dry execution (openreg_dry.h).
namespace openreg {
namespace {

struct MarkedRange {
  uintptr_t end;
  orContents contents;
};

// The ranges that are not known, by their first address. They do not overlap.
class ContentsMap {
 public:
  void mark(uintptr_t begin, uintptr_t end, orContents contents) {
    const std::lock_guard lock(mutex_);
    auto next = cutAt(begin);
    while (next != ranges_.end() && next->second.end <= end) {
      next = ranges_.erase(next);
    }
    if (next != ranges_.end() && next->first < end) {
      const MarkedRange rest = next->second;
      ranges_.erase(next);
      ranges_.emplace(end, rest);
    }
    if (contents != orContentsKnown) {
      join(ranges_.emplace(begin, MarkedRange{end, contents}).first);
    }
  }

  orContents of(uintptr_t begin, uintptr_t end) {
    const std::lock_guard lock(mutex_);
    auto interval = ranges_.upper_bound(begin);
    if (interval != ranges_.begin() && std::prev(interval)->second.end > begin) {
      --interval;
    }
    orContents found = orContentsKnown;
    for (; interval != ranges_.end() && interval->first < end; ++interval) {
      found = std::max(found, interval->second.contents);
    }
    return found;
  }

 private:
  using Ranges = std::map<uintptr_t, MarkedRange>;

  // Cuts the interval that contains `address` in two. Returns the first interval that begins at `address` or later.
  Ranges::iterator cutAt(uintptr_t address) {
    const auto next = ranges_.lower_bound(address);
    if (next == ranges_.begin()) {
      return next;
    }
    const auto previous = std::prev(next);
    if (previous->second.end <= address) {
      return next;
    }
    const MarkedRange rest = previous->second;
    previous->second.end = address;
    return ranges_.emplace(address, rest).first;
  }

  // Joins an interval with equal neighbours, so that the map stays small.
  void join(Ranges::iterator interval) {
    const auto next = std::next(interval);
    if (next != ranges_.end() && next->first == interval->second.end &&
        next->second.contents == interval->second.contents) {
      interval->second.end = next->second.end;
      ranges_.erase(next);
    }
    if (interval != ranges_.begin()) {
      const auto previous = std::prev(interval);
      if (previous->second.end == interval->first && previous->second.contents == interval->second.contents) {
        previous->second.end = interval->second.end;
        ranges_.erase(interval);
      }
    }
  }

  std::mutex mutex_;
  Ranges ranges_;
};

ContentsMap& contentsMap() {
  static auto* const map = new ContentsMap; // a thread may use it while the process exits
  return *map;
}

uintptr_t addressOf(const void* devPtr) {
  return reinterpret_cast<uintptr_t>(orGetDevicePointer(devPtr));
}

} // namespace
} // namespace openreg

using namespace openreg;

void orDryStart(void) {
  hostBacksMemory = false;
}

void orDrySetEventTime(orEventTimeFn_t timeOf) {
  simulatedEventTime = timeOf;
}

void orDryMark(const void* devPtr, size_t size, orContents contents) {
  if (size > 0 && !isInBadFork()) {
    contentsMap().mark(addressOf(devPtr), addressOf(devPtr) + size, contents);
  }
}

orContents orDryContents(const void* devPtr, size_t size) {
  if (size == 0 || isInBadFork()) {
    return orContentsKnown;
  }
  return contentsMap().of(addressOf(devPtr), addressOf(devPtr) + size);
}
