#pragma once

#include <functional>
#include <map>

#include "runtime/memory/OpenRegPoolSet.h"

namespace c10::openreg {

// All pools of one device, and which of them serves a request. This class takes no lock: its callers, DeviceBlockCache
// and DeviceCachingAllocator, hold the lock of the device.
class DevicePools {
 public:
  // `stats` are the statistics of the device. The pools of temporaries count in other statistics, which nobody sees.
  DevicePools(DeviceStats* stats, BlockTable* blocks) : stats_(stats), blocks_(blocks) {
    temporaries_.of_temporaries = true;
  }

  // The pool that serves a request of the current stream `stream`: a pool of the first MemPool whose filter accepts the
  // stream. If there is no such MemPool, a shared pool.
  BlockPool& get_pool(size_t size, Stream stream) {
    return pool_of(C10_LIKELY(routes_.empty()) ? shared_ : route(stream), stream.id(), size);
  }

  BlockPool& get_pool_of_temporaries(size_t size) {
    return pool_of(temporaries_, 0, size);
  }

  // A free block for a request that found no other memory, from a MemPool that allows it (use_on_oom); null if there is
  // none.
  Block* find_in_lending_pools(size_t size, StreamId stream);

  // ---- MemPools

  // The pools of the MemPool `id`. Throws if nobody has used it yet, or if forget_empty_pools() has removed it.
  PoolSet& private_pools(MempoolId_t id);

  // Adds a user of the MemPool `id`, and makes its pools at the first use.
  PoolSet& create_or_incref_pool(MempoolId_t id);

  void begin_allocate_to_pool(MempoolId_t id, std::function<bool(Stream)> filter);
  void end_allocate_to_pool(MempoolId_t id);

  // Removes the MemPools that have neither a user nor a segment.
  void forget_empty_pools();

  // ---- lists of pools

  // The large shared pools: those that belong to no MemPool.
  std::vector<BlockPool*> large_pools();

  // The pools whose free segments may go back to the device. `id` {0, 0}: the shared pools, the pools of temporaries,
  // and the pools of MemPools that nobody uses any more. Another `id`: the pools of this MemPool, if nobody uses it any
  // more.
  std::vector<BlockPool*> releasable_pools(MempoolId_t id);

 private:
  DeviceStats* const stats_;
  BlockTable* const blocks_;
  DeviceStats stats_of_temporaries_;
  PoolSet shared_, temporaries_;
  std::map<MempoolId_t, std::unique_ptr<PoolSet>> private_pools_;
  std::vector<std::pair<PoolSet*, std::function<bool(Stream)>>> routes_; // from begin_allocate_to_pool()

  BlockPool& pool_of(PoolSet& set, StreamId stream, size_t size) {
    if (C10_UNLIKELY(set.streams.size() <= static_cast<size_t>(stream) || !set.streams[stream])) {
      add_pools(set, stream);
    }
    const auto& pools = set.streams[stream];
    return size <= kSmallSize ? pools->small : pools->large;
  }

  PoolSet& route(Stream stream);
  void add_pools(PoolSet& set, StreamId stream);
};

} // namespace c10::openreg
