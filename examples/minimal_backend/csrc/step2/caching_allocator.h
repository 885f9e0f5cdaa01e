#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>

#include "../backend.h"
#include "../device.h"

// The second step: an allocator that keeps memory. The driver's allocation is slow and waits for the device. So this
// allocator gets large *segments* from the driver, cuts *blocks* out of them, and keeps freed blocks for later requests.
// The sizes are those of CUDA's allocator.
//
// Streams: a block belongs to the stream that was current when it was allocated. The work of a stream runs in order. So
// a freed block may go to the same stream at once, even if work that uses the block is still queued. Another stream
// never gets the block.
//
// Lock: `mutex_` guards everything in the class. A thread that holds it calls only the driver's allocation and release.
namespace abacus {

using namespace c10::CachingDeviceAllocator; // Stat, StatArray, StatType, DeviceStats

// Sizes of blocks are multiples of kAlignment. A request of at most 1 MiB is cut out of a segment of 2 MiB, and one of at
// most 10 MiB out of a segment of 20 MiB. A larger request gets a segment of its own, a multiple of 2 MiB.
constexpr size_t kAlignment = 512, kMiB = size_t{1} << 20;
constexpr size_t kSmallRequest = kMiB, kSmallSegment = 2 * kMiB, kMediumRequest = 10 * kMiB, kMediumSegment = 20 * kMiB;

inline size_t round_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// A range of a segment. Neighbours in the same segment are linked. A free block has no free neighbour.
struct Block {
  char* memory;
  size_t size;
  c10::StreamId stream;
  bool small;           // the segment is a small one
  size_t requested = 0; // bytes that the user asked for; the rest is rounding
  Block *before = nullptr, *after = nullptr;
};

// Makes two blocks neighbours. nullptr: the other one is the first or the last of its segment.
inline void link(Block* before, Block* after) {
  if (before != nullptr) {
    before->after = after;
  }
  if (after != nullptr) {
    after->before = before;
  }
}

// The order of free blocks: lower_bound() finds the smallest one of a stream that is large enough.
inline constexpr auto kOrder = [](const Block* a, const Block* b) {
  return std::tie(a->stream, a->small, a->size, a->memory) < std::tie(b->stream, b->small, b->size, b->memory);
};

class CachingAllocator : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = bytes ? take(bytes) : nullptr;
    return {memory, memory, &give_back, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &give_back;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int64_t n = static_cast<int64_t>(bytes), stride = 1;
    copy_strided(to, &stride, from, &stride, &n, 1, 1);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    const std::lock_guard lock(mutex_);
    release_segments();
  }
  // To be called for memory that a second stream uses. In this step there is one stream; the third step has several.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    reset(&Stat::reset_accumulated);
  }
  void resetPeakStats(c10::DeviceIndex) override {
    reset(&Stat::reset_peak);
  }

 protected:
  // Makes a freed block a free block.
  virtual void put_back(Block& block) {
    merge(block, block.before);
    merge(block, block.after);
    free_.insert(&block);
  }
  // Called before a block is searched for, and, with `wait`, before segments are released.
  virtual void collect(bool /*wait*/) {}

  // LITERALINCLUDE START: TAKE
  void* take(size_t bytes) {
    const c10::StreamId stream = c10::impl::VirtualGuardImpl(kType).getStream(kDevice).id();
    const size_t size = round_up(bytes, kAlignment);
    const std::lock_guard lock(mutex_);
    collect(false);
    Block* block = find_free(size, stream);
    if (block == nullptr && (block = new_segment(size, stream)) == nullptr) {
      ++stats_.num_ooms;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "abacus out of memory. Tried to allocate ", bytes, " bytes.");
    }
    // A small rest stays in the block, because it would be of no use for another request.
    if (block->size - size >= (block->small ? kAlignment : kSmallRequest)) {
      split(*block, size);
    }
    block->requested = bytes;
    used_.emplace(block->memory, block);
    count(*block, &Stat::increase);
    return block->memory;
  }
  // LITERALINCLUDE END: TAKE

  static void give_back(void* memory) {
    static_cast<CachingAllocator*>(c10::GetAllocator(kType))->free(memory);
  }

  void free(void* memory) {
    if (memory == nullptr) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(memory);
    TORCH_INTERNAL_ASSERT(found != used_.end(), "abacus: this pointer is not allocated: ", memory);
    Block* const block = found->second;
    used_.erase(found);
    count(*block, &Stat::decrease);
    put_back(*block);
  }

  // Removes the block from the free blocks. Returns nullptr if no free block is large enough.
  Block* find_free(size_t size, c10::StreamId stream) {
    const bool small = size <= kSmallRequest;
    Block wanted{nullptr, size, stream, small};
    const auto found = free_.lower_bound(&wanted);
    if (found == free_.end() || (*found)->stream != stream || (*found)->small != small) {
      return nullptr;
    }
    return free_.extract(found).value();
  }

  // Returns nullptr if the driver has no memory left, not even after all free segments have been given back to it.
  Block* new_segment(size_t size, c10::StreamId stream) {
    const bool small = size <= kSmallRequest;
    const size_t bytes = small                    ? kSmallSegment
                         : size <= kMediumRequest ? kMediumSegment
                                                  : round_up(size, kSmallSegment);
    void* memory = abacus::allocate(bytes);
    if (memory == nullptr) {
      ++stats_.num_alloc_retries;
      release_segments();
      memory = abacus::allocate(bytes);
    }
    if (memory == nullptr) {
      return nullptr;
    }
    add(stats_.segment, small, 1, &Stat::increase);
    add(stats_.reserved_bytes, small, bytes, &Stat::increase);
    return new Block{static_cast<char*>(memory), bytes, stream, small};
  }

  // Gives the segments back of which no part is used.
  void release_segments() {
    collect(true);
    std::erase_if(free_, [&](const Block* block) {
      if (block->before != nullptr || block->after != nullptr) {
        return false;
      }
      add(stats_.segment, block->small, 1, &Stat::decrease);
      add(stats_.reserved_bytes, block->small, block->size, &Stat::decrease);
      release(block->memory);
      delete block;
      return true;
    });
  }

  // Cuts the block to `size` bytes. The rest becomes a free block.
  void split(Block& block, size_t size) {
    auto* const rest = new Block{block.memory + size, block.size - size, block.stream, block.small};
    link(rest, block.after);
    link(&block, rest);
    block.size = size;
    free_.insert(rest);
  }

  // Makes `block` larger by `neighbour`, if that is free.
  void merge(Block& block, Block* neighbour) {
    if (neighbour == nullptr || free_.erase(neighbour) == 0) {
      return;
    }
    if (neighbour == block.before) {
      block.memory = neighbour->memory;
      link(neighbour->before, &block);
    } else {
      link(&block, neighbour->after);
    }
    block.size += neighbour->size;
    delete neighbour;
  }

  // ---- Statistics: each is kept for all blocks, and for small and large segments.
  using Change = void (Stat::*)(size_t);
  static void add(StatArray& array, bool small, size_t amount, Change change) {
    (array[static_cast<size_t>(StatType::AGGREGATE)].*change)(amount);
    (array[static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL)].*change)(amount);
  }
  void count(const Block& block, Change change) {
    add(stats_.allocation, block.small, 1, change);
    add(stats_.active, block.small, 1, change);
    add(stats_.allocated_bytes, block.small, block.size, change);
    add(stats_.active_bytes, block.small, block.size, change);
    add(stats_.requested_bytes, block.small, block.requested, change);
  }
  void reset(void (Stat::*change)()) {
    const std::lock_guard lock(mutex_);
    for (StatArray DeviceStats::* const array :
         {&DeviceStats::allocation,
          &DeviceStats::segment,
          &DeviceStats::active,
          &DeviceStats::allocated_bytes,
          &DeviceStats::reserved_bytes,
          &DeviceStats::active_bytes,
          &DeviceStats::requested_bytes}) {
      for (Stat& stat : stats_.*array) {
        (stat.*change)();
      }
    }
  }

  std::mutex mutex_;
  std::set<Block*, decltype(kOrder)> free_;
  std::unordered_map<void*, Block*> used_;
  DeviceStats stats_;
};

} // namespace abacus
