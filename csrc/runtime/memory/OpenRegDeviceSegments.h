#pragma once

#include <limits>
#include <optional>

#include "runtime/memory/OpenRegMemoryHistory.h"
#include "runtime/memory/OpenRegPoolSet.h"

namespace c10::openreg {

// The free and the total bytes of `device`.
std::pair<size_t, size_t> memory_info(DeviceIndex device);

// The segments of one device. This class allocates segments from the device, up to the memory fraction of the process,
// counts them, and frees them. It takes no lock: its callers, DeviceBlockCache and DeviceCachingAllocator, hold the
// device's lock during each call except free().
class DeviceSegments {
 public:
  using Context = std::shared_ptr<GatheredContext>;
  using Segments = std::vector<std::unique_ptr<Block>>;

  DeviceSegments(DeviceIndex device, DeviceStats* stats, BlockTable* blocks, MemoryHistory* history)
      : device_(device), stats_(stats), blocks_(blocks), history_(history) {}

  // A new segment of `size` bytes, as one block. The block belongs to `pool`, but is not in the pool's lists of free
  // blocks. Null if the device has no room for the segment, or if the process may not have that much.
  Block* alloc(BlockPool& pool, size_t size, const Context& context);

  // These functions remove free segments from pools. The caller then passes the segments to free(), without the lock.
  Segments take_all(const std::vector<BlockPool*>& pools, const Context& context);
  // Only segments of at least max_split_size_mb, until they make up `wanted` bytes.
  Segments take_oversize(BlockPool& pool, size_t wanted, const Context& context);
  // Only the segments that have been free for longest, until they make up `wanted` bytes.
  Segments take_oldest(const std::vector<BlockPool*>& pools, double wanted, const Context& context);

  // Gives segments back to the device. Waits for the work of all devices, as orFree() does.
  static void free(const Segments& segments);

  // Limits what the process may reserve to this fraction of the device's memory, whose size in bytes is `total`.
  void set_memory_fraction(double fraction, size_t total) {
    memory_fraction_ = fraction;
    allowed_memory_ = static_cast<size_t>(fraction * static_cast<double>(total));
  }
  double memory_fraction() const {
    return memory_fraction_;
  }
  size_t allowed_memory() const {
    return allowed_memory_;
  }

 private:
  const DeviceIndex device_;
  DeviceStats* const stats_;
  BlockTable* const blocks_;
  MemoryHistory* const history_;
  double memory_fraction_ = 1;
  size_t allowed_memory_ = std::numeric_limits<size_t>::max(); // bytes

  template <class Chosen>
  Segments take(const std::vector<BlockPool*>& pools, const Context& context, const Chosen& chosen);
  void count(const Block& segment, bool is_new);
  void record(TraceEntry::Action action, const Block& segment, const Context& context);
};

} // namespace c10::openreg
