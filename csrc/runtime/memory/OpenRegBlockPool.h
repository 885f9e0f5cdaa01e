#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

// The free blocks of the device allocator: how they are kept, found, split and merged. Nothing here takes memory from the
// device or gives it back, and nothing is locked: the allocator does both.
namespace c10::openreg {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

// CUDACachingAllocator's sizes, in bytes.
constexpr size_t kMinBlock = 512;
constexpr size_t kSmallLimit = 1 << 20; // the largest block of a small segment

C10_ALWAYS_INLINE void increase(StatArray& stat, StatType pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(pool)].increase(amount);
}

C10_ALWAYS_INLINE void decrease(StatArray& stat, StatType pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(pool)].decrease(amount);
}

class BlockPool;

// A piece of a segment. The blocks of a segment form a list in address order.
struct Block {
  char* address; // in the device window
  size_t size;
  DeviceIndex device;
  BlockPool* pool;
  size_t requested = 0;
  uint64_t freed_at = 0; // the pool's count of searches, for its age
  bool allocated = false;
  bool binned = false;
  bool poisoned = false;  // only while it waits for that
  int pending_events = 0; // freed, but other streams may still use it
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* next_in_bin = nullptr;
  std::vector<Stream> other_streams;                // from recordStream()
  std::shared_ptr<GatheredContext> context;         // where it was allocated, if that is recorded
  std::shared_ptr<GatheredContext> segment_context; // a segment's first block: where the segment was

  Block(char* address, size_t size, DeviceIndex device, BlockPool* pool)
      : address(address), size(size), device(device), pool(pool) {}

  bool is_split() const {
    return previous || next;
  }
};

struct BySizeThenAddress {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};

using BlockTable = ska::flat_hash_map<char*, Block*>; // every block by its address, allocated or not
struct PoolSet;

// The free blocks of one stream and size class. A freed small block first goes to the bin of its exact size, unmerged,
// and comes back from there in a few nanoseconds: training allocates the same sizes again and again. When no block
// fits, the bins are emptied, neighbours merged, and the search repeated before the allocator makes a new segment.
//
// Every free block is in a bin or in `merged_`, and counted as inactive if it is part of a split segment.
class BlockPool {
 public:
  BlockPool(StreamId stream, bool small, PoolSet* owner, DeviceStats* stats, BlockTable* blocks)
      : stream(stream), small(small), owner(owner), stats_(stats), blocks_(blocks) {}

  const StreamId stream;
  const bool small;
  PoolSet* const owner;

  StatType stat_type() const {
    return small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  }

  // The smallest free block of at least `size` bytes, taken out; null if there is none.
  Block* find(size_t size) {
    ++searches_;
    if (C10_LIKELY(small)) {
      Block*& bin = bins_[size / kMinBlock];
      if (C10_LIKELY(bin != nullptr)) {
        Block* block = bin;
        bin = block->next_in_bin;
        block->binned = false;
        --binned_;
        leave(block);
        return block;
      }
    }
    return find_merged(size);
  }

  // A block that nobody uses any more.
  void put(Block* block) {
    block->freed_at = searches_;
    if (C10_UNLIKELY(!small || block->size > kSmallLimit)) {
      merge(block);
      return;
    }
    Block*& bin = bins_[block->size / kMinBlock];
    block->next_in_bin = bin;
    block->binned = true;
    bin = block;
    ++binned_;
    enter(block);
  }

  // Cuts `block`, which is in use, to `size` bytes; the rest is free.
  void split(Block* block, size_t size);

  // Takes out, and forgets, the free blocks that are whole segments and that `chosen` wants.
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

  // Searches since the block became free.
  uint64_t age(const Block* block) const {
    return searches_ - block->freed_at;
  }

 private:
  DeviceStats* const stats_;
  BlockTable* const blocks_;
  uint64_t searches_ = 0;
  size_t binned_ = 0;
  std::set<Block*, BySizeThenAddress> merged_;
  std::array<Block*, kSmallLimit / kMinBlock + 1> bins_{};

  void enter(const Block* block) {
    if (block->is_split()) {
      increase(stats_->inactive_split, stat_type(), 1);
      increase(stats_->inactive_split_bytes, stat_type(), block->size);
    }
  }

  void leave(const Block* block) {
    if (block->is_split()) {
      decrease(stats_->inactive_split, stat_type(), 1);
      decrease(stats_->inactive_split_bytes, stat_type(), block->size);
    }
  }

  Block* find_merged(size_t size);
  void merge_bins();
  void merge(Block* block);
};

struct StreamPools {
  BlockPool large, small;

  StreamPools(StreamId stream, PoolSet* owner, DeviceStats* stats, BlockTable* blocks)
      : large(stream, false, owner, stats, blocks), small(stream, true, owner, stats, blocks) {}
};

// The pools of all streams of one device: the ones that everybody allocates from, or those of a torch.openreg.MemPool.
struct PoolSet {
  MempoolId_t id{0, 0};
  int use_count = 0;       // of a MemPool: the object itself and who allocates from it now
  bool use_on_oom = false; // others may take its free blocks before they run out of memory
  bool no_split = false;
  bool of_temporaries = false; // those of queued kernels: of one stream, 0, which stands for none
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
