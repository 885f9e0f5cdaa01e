#pragma once

#include <c10/util/flat_hash_map.h>

#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegAllocatorConfig.h"
#include "runtime/memory/OpenRegMemoryHistory.h"

// The caching allocator of one device. Functions and classes that also exist in c10/cuda/CUDACachingAllocator.cpp have
// the same names as there. OpenRegCachingAllocator.cpp has the rules, and what happens to a block from malloc() to
// free(). The other files of this folder can be read later: Segments (what a request needs rarely), PrivatePools
// (MemPool and its checkpoints), MemoryHistory, AllocatorConfig. Only this folder includes this
// header: DeviceAllocator is what other code calls.
namespace c10::openreg {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

using Context = std::shared_ptr<GatheredContext>; // a stack trace of the program; null if none is recorded

// ---- statistics: CUDA's, for small and large pools, and for both together

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

// ---- blocks and pools

class BlockPool;
struct PoolSet;
struct PrivatePoolState; // OpenRegDeviceAllocator.h

struct Block {
  char* address; // in the device window (openreg.h, section Memory)
  size_t size;
  DeviceIndex device;
  BlockPool* pool;
  size_t requested_size = 0;
  size_t padding = 0;    // the last bytes of `size`, which an observer asked for (RuntimeObserver::before_alloc)
  uint64_t freed_at = 0; // The pool's count of searches when the block became free. The block's age follows from it.
  bool allocated = false;
  bool binned = false;  // free, and in one of its pool's bins, where neighbours are not merged
  bool held = false;    // free, and waits for the event of RuntimeObserver::before_reuse()
  bool is_idle = false; // free, and in IdleBlocks
  int event_count = 0;  // free, but this many events must pass before the block may be reused
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* next_in_bin = nullptr;
  std::vector<Stream> stream_uses; // the streams that recordStream() named
  Context context_when_allocated;
  Context context_when_segment_allocated; // only in the first block of a segment

  Block(char* address, size_t size, DeviceIndex device, BlockPool* pool)
      : address(address), size(size), device(device), pool(pool) {}

  // The size that the statistics count.
  size_t counted_size() const {
    return size - padding;
  }
  bool is_split() const {
    return previous || next;
  }
};

Stream stream_of(const Block* block);

struct BlockComparatorSize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};

// Every block of a device by its address, allocated or free.
using BlockTable = ska::flat_hash_map<char*, Block*>;

// The free blocks of one stream for small requests (up to 1 MiB), or those for large ones: how they are kept, found,
// split and merged.
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
  Block* find(size_t size);

  // Adds a block that nobody uses any more.
  void put(Block* block);

  // Empties the bins: merges their blocks with free neighbours.
  void merge_bins();

  // Cuts `block`, which find() has returned or which is a new segment, to `size` bytes, and adds the remainder as a
  // free block.
  void split(Block* block, size_t size);

  // The free blocks that are whole segments. Empties the bins first.
  std::vector<Block*> free_segments();
  // Removes one of these blocks from the pool and from the table of blocks. The caller deletes it.
  void remove(Block* segment);

  // Removes `block`, which is in no bin, from the pool, as find() does.
  void take(Block* block);

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

  void add_to_inactive_stats(const Block* block);
  void remove_from_inactive_stats(const Block* block);
  Block* find_merged(size_t size);
  void merge(Block* block);
};

C10_ALWAYS_INLINE void BlockPool::add_to_inactive_stats(const Block* block) {
  if (block->is_split()) {
    increase(stats_->inactive_split, stat_type(), 1);
    increase(stats_->inactive_split_bytes, stat_type(), block->size);
  }
}

C10_ALWAYS_INLINE void BlockPool::remove_from_inactive_stats(const Block* block) {
  if (block->is_split()) {
    decrease(stats_->inactive_split, stat_type(), 1);
    decrease(stats_->inactive_split_bytes, stat_type(), block->size);
  }
}

C10_ALWAYS_INLINE Block* BlockPool::find(size_t size) {
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

C10_ALWAYS_INLINE void BlockPool::put(Block* block) {
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

// The pools of one stream.
struct StreamPools {
  BlockPool large, small;

  StreamPools(StreamId stream, PoolSet* owner, DeviceStats* stats, BlockTable* blocks)
      : large(stream, false, owner, stats, blocks), small(stream, true, owner, stats, blocks) {}
};

// The pools that serve one kind of request, for each stream of one device: the shared pools, or the pools of one
// torch.openreg.MemPool (CUDA's PrivatePool).
struct PoolSet {
  MempoolId_t id{0, 0};    // {0, 0}: not a MemPool's
  int use_count = 0;       // of a MemPool: use_pool() and begin_allocate_to_pool() add 1, release_pool() subtracts 1
  bool use_on_oom = false; // other requests may take free blocks from here before they run out of memory
  bool no_split = false;   // blocks are never split
  size_t segments = 0;
  std::vector<std::unique_ptr<StreamPools>> streams; // by stream id

  bool is_private() const {
    return id != MempoolId_t{0, 0};
  }
  bool is_of_graph() const { // as with CUDA, the ids of a graph's own pools are {n, 0}
    return id.first != 0;
  }

  void append_to(std::vector<BlockPool*>& pools) {
    for (auto& of_stream : streams) {
      if (of_stream) {
        pools.insert(pools.end(), {&of_stream->small, &of_stream->large});
      }
    }
  }
};

// All pools of one device, and which of them serves a request.
class DevicePools {
 public:
  DevicePools(DeviceStats* stats, BlockTable* blocks) : stats_(stats), blocks_(blocks) {}

  // The pool that serves a request of the current stream `stream`: a pool of the first MemPool whose filter accepts the
  // stream. If there is no such MemPool, a shared pool.
  BlockPool& get_pool(size_t size, Stream stream) {
    return pool_of(C10_LIKELY(routes_.empty()) ? shared_ : route(stream), stream.id(), size);
  }

  // A free block for a request that found no other memory, from a MemPool that allows it (use_on_oom); null if there is
  // none.
  Block* find_in_use_on_oom_pools(size_t size, StreamId stream);

  // ---- MemPools (OpenRegPrivatePools.cpp)

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

  // The pools whose free segments may go back to the device. `id` {0, 0}: the shared pools, and the pools of
  // MemPools that nobody uses any more. Another `id`: the pools of this MemPool, if nobody uses it any more.
  std::vector<BlockPool*> releasable_pools(MempoolId_t id);

 private:
  DeviceStats* const stats_;
  BlockTable* const blocks_;
  PoolSet shared_;
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

// The free and the total bytes of `device`.
std::pair<size_t, size_t> memory_info(DeviceIndex device);

// Whether max_split_size_mb forbids splitting a block of this size.
inline bool is_oversize(size_t size) {
  return size > kSmallSize && size >= c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size();
}

// Blocks that were freed while streams still used them. Each waits for events.
class BlockEvents {
 public:
  bool empty() const {
    return events_.empty() && deferred_.empty();
  }

  // Records an event on each stream that recordStream() named for the block. While a stream of the process captures,
  // only notes the block, and take_finished() does so later.
  void insert_events(Block* block);

  // Lets the block wait for `event` too, and takes the event over. The caller has counted it in event_count.
  void insert(orEvent_t event, Block* block) {
    events_.emplace_back(event, block);
  }

  // Removes the events that have passed, and returns the blocks that wait for no other event. Such a block keeps an
  // event_count of 1, so that no neighbour merges with it; the caller sets the count to 0 when the block may be reused.
  std::vector<Block*> take_finished();

 private:
  std::deque<std::pair<orEvent_t, Block*>> events_;
  std::vector<Block*> deferred_; // by insert_events()
};

// The blocks that were freed last, which an observer keeps from reuse (RuntimeObserver::before_reuse()). They are in no
// pool yet.
class IdleBlocks {
 public:
  bool takes(const Block* block) const {
    return block->size <= limit_ && !block->pool->owner->is_private();
  }
  void add(Block* block);
  void set_limit(size_t limit);
  // Gives the oldest blocks to their pools until at most `limit` bytes are left. Returns whether there was one.
  bool release(size_t limit);

 private:
  std::deque<Block*> blocks_;
  size_t bytes_ = 0;
  size_t limit_ = 0;
};

// One request, on its way through the allocator.
struct AllocParams {
  const Stream stream;
  const size_t requested_size;
  const Context context;
  size_t size = 0;          // of the block: rounded, with the padding
  size_t padding = 0;       // what an observer adds to the size
  bool has_padding = false; // an observer asked for padding; rounding may already have left it
  size_t alloc_size = 0;    // of a new segment
  BlockPool* pool = nullptr;
  Block* block = nullptr; // the result

  // A constructor, because g++ would fill an aggregate with a string instruction.
  AllocParams(Stream stream, size_t requested_size, Context context)
      : stream(stream), requested_size(requested_size), context(std::move(context)) {}
};

// The size of a new segment for a block of params.size bytes.
size_t get_allocation_size(const AllocParams& params);

// Everything that the lock of a device guards.
struct DeviceState {
  DeviceStats stats;
  BlockTable blocks;
  DevicePools pools{&stats, &blocks};
  MemoryHistory history;
  BlockEvents events;
  IdleBlocks idle_blocks;
  std::vector<OutOfMemoryObserver> out_of_memory_observers;
  double memory_fraction = 1;                                 // of the device's memory: what the process may reserve,
  size_t allowed_memory = std::numeric_limits<size_t>::max(); // and the same in bytes

  explicit DeviceState(DeviceIndex device) : history(device) {}

  // The block at `pointer`, an address of the device window or of the kernel window; null if there is no block.
  Block* find_block(const void* pointer) const {
    const auto found = blocks.find(static_cast<char*>(orGetDevicePointer(pointer)));
    return found == blocks.end() ? nullptr : found->second;
  }

  // The blocks of the MemPool `id`, allocated or free, in the order of their addresses.
  std::vector<Block*> blocks_of(MempoolId_t id) const;

  // The steps in the life of a block, with what they count, record and report: params.block, which is in no pool, gets
  // an owner; the block loses its owner, and streams may still use it; it becomes available to later requests.
  C10_ALWAYS_INLINE char* alloc_found_block(const AllocParams& params);
  C10_ALWAYS_INLINE void release_block(Block* block, const Context& context);
  C10_ALWAYS_INLINE void free_block(Block* block, const Context& context);

  // The same for checkpoints (OpenRegPrivatePools.cpp), whose blocks come from no search, and which no stream uses.
  char* alloc_taken_block(const AllocParams& params);
  void free_at_rest(Block* block);

  void count_segment(const Block* segment, bool is_new);
  void report(const Block* block, int64_t bytes) const;
  C10_ALWAYS_INLINE void record_trace(
      TraceEntry::Action action, const Block* block, size_t size, const Context& context) {
    if (C10_UNLIKELY(history.enabled())) { // asked here too, before the arguments are loaded
      history.record(action, block->address, size, block->pool->stream, block->pool->owner->id, context);
    }
  }
};

// LITERALINCLUDE START: DEVICE CACHING ALLOCATOR
// The caching allocator of one device: how a request gets a block, what happens if the device has no room, and when a
// freed block may be reused. All public functions may be called from every thread.
class DeviceCachingAllocator : private DeviceState {
 public:
  explicit DeviceCachingAllocator(DeviceIndex device) : DeviceState(device), device_(device) {}

  // Memory for work on the current stream of the device, as a device address. Throws torch.OutOfMemoryError. `size` is
  // not 0.
  char* malloc(size_t size);
  void free(const void* pointer);
  void recordStream(const void* pointer, Stream stream);

  // Gives back all free segments of the pools that `id` stands for; see DevicePools::releasable_pools(). Waits for the
  // device.
  void emptyCache(MempoolId_t id);

  // Removes a user of the MemPool `id`. When the last one is gone, gives the pool's free segments back to the device.
  void release_pool(MempoolId_t id);

  // The state of the MemPool `id`, and the return to it: afterwards exactly the blocks are allocated that were allocated
  // then. Returns their addresses. The memory keeps its bytes, and nobody owns it. Both functions wait for the device.
  PrivatePoolState getCheckpointState(MempoolId_t id);
  std::vector<void*> setCheckpointPoolState(const PrivatePoolState& state);

  // Calls fn(state) with the lock held.
  template <class Fn>
  auto with_lock(const Fn& fn) {
    const std::lock_guard lock(mutex());
    return fn(static_cast<DeviceState&>(*this));
  }

  bool history_enabled() const {
    return history.enabled();
  }

 private:
  const DeviceIndex device_;
  Mutex mutex_; // guards the DeviceState

  Mutex& mutex();

  // ---- allocating
  bool get_free_block(AllocParams& params) {
    params.block = params.pool->find(params.size);
    return params.block != nullptr;
  }
  void get_new_block(std::unique_lock<Mutex>& lock, AllocParams& params);
  bool alloc_block(AllocParams& params);
  bool try_mempool_fallback(AllocParams& params);
  [[noreturn]] void throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params);

  // ---- freeing
  void process_events(std::unique_lock<Mutex>& lock, const Context& context);

  // ---- checkpoints (OpenRegPrivatePools.cpp)
  std::vector<Block*> blocks_at_rest(std::unique_lock<Mutex>& lock, MempoolId_t id);

  // ---- giving memory back to the device
  using Chosen = std::function<bool(const Block*)>;
  bool release_blocks(
      std::unique_lock<Mutex>& lock,
      const std::vector<BlockPool*>& pools,
      const Context& context,
      const Chosen& chosen);
  void release_cached_blocks(std::unique_lock<Mutex>& lock, const Context& context, MempoolId_t id);
  bool release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params);
  void garbage_collect_cached_blocks(std::unique_lock<Mutex>& lock, const Context& context);
  void synchronize_and_free_events(std::unique_lock<Mutex>& lock, const Context& context);

  // ---- observers
  void ask_before_alloc(AllocParams& params);
  bool may_reuse(std::unique_lock<Mutex>& lock, Block* block);
  void note_free(const void* pointer);
};
// LITERALINCLUDE END: DEVICE CACHING ALLOCATOR

} // namespace c10::openreg
