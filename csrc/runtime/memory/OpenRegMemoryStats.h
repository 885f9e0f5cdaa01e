#pragma once

#include <c10/core/CachingDeviceAllocator.h>

// The statistics of one device, as torch.openreg.memory_stats() shows them. Their names and meanings are CUDA's.
namespace c10::openreg {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

C10_ALWAYS_INLINE void increase(StatArray& stat, StatType type, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(type)].increase(amount);
}

C10_ALWAYS_INLINE void decrease(StatArray& stat, StatType type, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(type)].decrease(amount);
}

// The current value, small and large pools together.
inline int64_t current(const StatArray& stat) {
  return stat[static_cast<size_t>(StatType::AGGREGATE)].current;
}

// The sum of what all private pools have reserved now, in bytes.
size_t reserved_by_private_pools(const DeviceStats& stats);

void reset_accumulated(DeviceStats& stats);
void reset_peak(DeviceStats& stats);

} // namespace c10::openreg
