#pragma once

#include <array>
#include <set>

#include "runtime/memory/OpenRegAllocatorConfig.h"
#include "runtime/memory/OpenRegBlock.h"
#include "runtime/memory/OpenRegMemoryStats.h"

namespace c10::openreg {

struct PoolSet;

// The free blocks of one stream for small requests (up to 1 MiB), or those for large ones: how they are kept, found,
// split and merged. A BlockPool neither allocates nor frees segments; DeviceSegments does that. A BlockPool takes no
// lock: its callers hold the lock of the device during all calls.
//
// A freed block of up to 1 MiB goes into the bin of its exact size and is not merged with its neighbours, so that the
// next request of that size takes a few nanoseconds: training allocates the same sizes again and again. If no block
// fits a request, the bins are emptied, neighbours are merged, and the search is repeated before the allocator makes a
// new segment. CUDA's allocator merges at once instead.
//
// Every block of the pool is either in a bin or in `merged_`. A freed block that still waits for events is not in the
// pool yet. The blocks of the pool that are parts of a split segment are counted in the statistics inactive_split and
// inactive_split_bytes.
class BlockPool {
 public:
  BlockPool(StreamId stream, bool is_small, PoolSet* owner, DeviceStats* stats, BlockTable* blocks)
      : stream(stream), is_small(is_small), owner(owner), stats_(stats), blocks_(blocks) {}

  const StreamId stream;
  const bool is_small;
  PoolSet* const owner;

  StatType stat_type() const {
    return is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  }

  // Removes a free block of at least `size` bytes and returns it: a block from the bin of exactly this size, or else
  // the smallest block of `merged_` that fits. Returns null if no block fits even after all bins were merged, or if
  // max_split_size_mb forbids the block that fits. `size` is a multiple of 512. In a small pool it is at most 1 MiB.
  Block* find(size_t size) {
    ++searches_;
    if (C10_LIKELY(is_small)) {
      Block*& bin = bins_[size / kMinBlockSize];
      if (C10_LIKELY(bin != nullptr)) {
        Block* block = bin;
        bin = block->next_in_bin;
        block->binned = false;
        --binned_;
        remove_from_inactive_stats(block);
        return block;
      }
    }
    return find_merged(size);
  }

  // Adds a block that nobody uses any more.
  void put(Block* block) {
    block->freed_at = searches_;
    if (C10_UNLIKELY(!is_small || block->size > kSmallSize)) {
      merge(block);
      return;
    }
    Block*& bin = bins_[block->size / kMinBlockSize];
    block->next_in_bin = bin;
    block->binned = true;
    bin = block;
    ++binned_;
    add_to_inactive_stats(block);
  }

  // Cuts `block`, which find() has returned or which is a new segment, to `size` bytes, and adds the remainder as a
  // free block.
  void split(Block* block, size_t size);

  // Removes those free blocks that are whole segments and for which `chosen(block)` is true, from the pool and from the
  // table of blocks. Nobody but `chosen` gets these blocks, so the caller must keep the pointers in `chosen` and delete
  // the blocks.
  template <class Chosen>
  void take_segments(const Chosen& chosen) {
    merge_bins();
    for (auto it = merged_.begin(); it != merged_.end();) {
      Block* block = *it;
      if (block->is_split() || !chosen(block)) {
        ++it;
        continue;
      }
      it = merged_.erase(it);
      blocks_->erase(block->address);
    }
  }

  // The number of searches in this pool since a part of the block was last in use; of all searches if none ever was.
  uint64_t age(const Block* block) const {
    return searches_ - block->freed_at;
  }

 private:
  DeviceStats* const stats_;
  BlockTable* const blocks_;
  uint64_t searches_ = 0;
  size_t binned_ = 0;
  std::set<Block*, BlockComparatorSize> merged_;
  std::array<Block*, kSmallSize / kMinBlockSize + 1> bins_{};

  void add_to_inactive_stats(const Block* block) {
    if (block->is_split()) {
      increase(stats_->inactive_split, stat_type(), 1);
      increase(stats_->inactive_split_bytes, stat_type(), block->size);
    }
  }

  void remove_from_inactive_stats(const Block* block) {
    if (block->is_split()) {
      decrease(stats_->inactive_split, stat_type(), 1);
      decrease(stats_->inactive_split_bytes, stat_type(), block->size);
    }
  }

  Block* find_merged(size_t size);
  void merge_bins();
  void merge(Block* block);
};

} // namespace c10::openreg
