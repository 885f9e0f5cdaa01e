#include "runtime/memory/OpenRegMemoryStats.h"

namespace c10::openreg {
namespace {

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

} // namespace

size_t reserved_by_private_pools(const DeviceStats& stats) {
  size_t bytes = 0;
  for (const auto& [id, stat] : stats.reserved_bytes_by_private_pools) {
    bytes += current(stat);
  }
  return bytes;
}

void reset_accumulated(DeviceStats& stats) {
  for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
  stats.num_alloc_retries = stats.num_ooms = stats.num_sync_all_streams = 0;
  stats.num_device_alloc = stats.num_device_free = 0;
}

void reset_peak(DeviceStats& stats) {
  for_each_stat(stats, [](auto& stat) { stat.reset_peak(); });
}

} // namespace c10::openreg
