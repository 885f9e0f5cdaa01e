#pragma once

#include "runtime/memory/OpenRegBlockPool.h"

namespace c10::openreg {

// The pools of one stream.
struct StreamPools {
  BlockPool large, small;

  StreamPools(StreamId stream, PoolSet* owner, DeviceStats* stats, BlockTable* blocks)
      : large(stream, false, owner, stats, blocks), small(stream, true, owner, stats, blocks) {}
};

// The pools that serve one kind of request, for each stream of one device: the shared pools, the pools of one
// torch.openreg.MemPool (CUDA's PrivatePool), or the pools of temporaries.
struct PoolSet {
  MempoolId_t id{0, 0};    // {0, 0}: not a MemPool's
  int use_count = 0;       // of a MemPool: use_pool() and begin_allocate_to_pool() add 1, release_pool() subtracts 1
  bool use_on_oom = false; // other requests may take free blocks from here before they run out of memory
  bool no_split = false;   // blocks are never split
  // The pools of the temporaries of queued kernels. They belong to no stream, and have the stream id 0.
  bool of_temporaries = false;
  size_t segments = 0;
  std::vector<std::unique_ptr<StreamPools>> streams; // by stream id

  bool is_private() const {
    return id != MempoolId_t{0, 0};
  }

  void append_to(std::vector<BlockPool*>& pools) {
    for (auto& of_stream : streams) {
      if (of_stream) {
        pools.insert(pools.end(), {&of_stream->small, &of_stream->large});
      }
    }
  }
};

} // namespace c10::openreg
