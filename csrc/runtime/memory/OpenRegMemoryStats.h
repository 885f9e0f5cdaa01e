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

// Calls fn(stat) for each statistic that has a peak.
template <class Fn>
void for_each_stat(DeviceStats& stats, const Fn& fn) {
  const auto each = [&](StatArray& array) {
    for (auto& stat : array) {
      fn(stat);
    }
  };
  for (StatArray* array :
       {&stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes}) {
    each(*array);
  }
  for (auto& [id, array] : stats.reserved_bytes_by_private_pools) {
    each(array);
  }
  fn(stats.oversize_allocations);
  fn(stats.oversize_segments);
}

// The sum of what all private pools have reserved now, in bytes.
inline size_t reserved_by_private_pools(const DeviceStats& stats) {
  size_t bytes = 0;
  for (const auto& [id, stat] : stats.reserved_bytes_by_private_pools) {
    bytes += current(stat);
  }
  return bytes;
}

inline void reset_accumulated(DeviceStats& stats) {
  for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
  stats.num_alloc_retries = stats.num_ooms = stats.num_sync_all_streams = 0;
  stats.num_device_alloc = stats.num_device_free = 0;
}

inline void reset_peak(DeviceStats& stats) {
  for_each_stat(stats, [](auto& stat) { stat.reset_peak(); });
}

} // namespace c10::openreg
