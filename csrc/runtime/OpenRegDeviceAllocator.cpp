#include "OpenRegDeviceAllocator.h"

#include <c10/util/flat_hash_map.h>

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "OpenRegStream.h"

namespace c10::openreg {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

// CUDACachingAllocator's sizes, in bytes.
constexpr size_t kMinBlock = 512;
constexpr size_t kSmallLimit = 1 << 20; // the largest block of a small segment
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kOwnSegmentLimit = 10 << 20; // from here a request gets a segment of its own
constexpr size_t kSegmentRounding = 2 << 20;

constexpr size_t round_up(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

struct Pool;

// A piece of a segment. Blocks of a segment form a list in address order.
struct Block {
  char* address; // in the kernel window
  size_t size;
  DeviceIndex device;
  Pool* pool;
  size_t requested = 0;
  bool allocated = false;
  bool binned = false;
  int pending_events = 0; // freed, but other streams may still use it
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* next_in_bin = nullptr;
  std::vector<Stream> other_streams; // from recordStream()

  Block(char* address, size_t size, DeviceIndex device, Pool* pool)
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

// The free blocks of one stream and size class. A freed small block first goes to the bin of its exact size, unmerged, and
// comes back from there in a few nanoseconds: training allocates the same sizes again and again. When no block fits, the
// bins are emptied, neighbours merged, and the search repeated before a new segment is made.
struct Pool {
  StreamId stream;
  bool small;
  std::set<Block*, BySizeThenAddress> merged;
  std::array<Block*, kSmallLimit / kMinBlock + 1> bins{};
  size_t binned = 0;

  StatType stat_type() const {
    return small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  }
};

struct StreamPools {
  Pool small, large;
  explicit StreamPools(StreamId stream) : small{stream, true, {}, {}}, large{stream, false, {}, {}} {}
};

struct DeviceCache {
  std::vector<std::unique_ptr<StreamPools>> streams; // by stream id
  std::deque<std::pair<orEvent_t, Block*>> events;
  DeviceStats stats;
};

void increase(StatArray& stat, StatType pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(pool)].increase(amount);
}

void decrease(StatArray& stat, StatType pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(pool)].decrease(amount);
}

template <class Fn>
void for_each_stat(DeviceStats& stats, const Fn& fn) {
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
    for (auto& stat : *array) {
      fn(stat);
    }
  }
}

std::string format_size(size_t bytes) {
  std::ostringstream out;
  out.precision(2);
  out << std::fixed;
  if (bytes < 1024) {
    out << bytes << " bytes";
  } else if (bytes < 1 << 20) {
    out << bytes / 1024.0 << " KiB";
  } else if (bytes < 1 << 30) {
    out << bytes / 1048576.0 << " MiB";
  } else {
    out << bytes / 1073741824.0 << " GiB";
  }
  return out.str();
}

void free_block(void* address);

class CachingAllocator final : public OpenRegDeviceAllocator {
 public:
  DataPtr allocate(size_t size) override {
    const DeviceIndex device = current_device();
    void* address = orGetDevicePointer(take(size, device));
    return {address, address, &free_block, Device(DeviceType::PrivateUse1, device)};
  }

  DataPtr allocate_for_kernel(size_t size, DeviceIndex device) override {
    void* address = take(size, device);
    return {address, address, &free_block, Device(DeviceType::CPU)};
  }

  DeleterFnPtr raw_deleter() const override {
    return &free_block;
  }

  void copy_data(void* destination, const void* source, size_t size) const override {
    OPENREG_CHECK(orMemcpy(destination, source, size, orMemcpyDeviceToDevice));
  }

  bool initialized() override {
    return !caches_.empty();
  }

  void emptyCache(MempoolId_t) override {
    std::unique_lock lock(mutex_);
    for (size_t device = 0; device < caches_.size(); ++device) {
      release_cached(lock, static_cast<DeviceIndex>(device));
    }
  }

  void recordStream(const DataPtr& data, c10::Stream stream) override {
    if (!data.get()) {
      return;
    }
    stream_handle(stream); // refuses a stream of another device type
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(orGetKernelPointer(data.get())));
    if (found == blocks_.end()) {
      return; // memory of another owner, as an imported DLPack tensor: its owner keeps it alive
    }
    Block* block = found->second;
    const bool own = stream.id() == block->pool->stream && stream.device_index() == block->device;
    auto& streams = block->other_streams;
    if (!own && std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  }

  DeviceStats getDeviceStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex_);
    return cache_of(device).stats;
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex_);
    DeviceStats& stats = cache_of(device).stats;
    for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
    stats.num_alloc_retries = stats.num_ooms = stats.num_sync_all_streams = 0;
    stats.num_device_alloc = stats.num_device_free = 0;
  }

  void resetPeakStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex_);
    for_each_stat(cache_of(device).stats, [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const CurrentDevice current(device);
    size_t free = 0, total = 0;
    OPENREG_CHECK(orMemGetInfo(&free, &total));
    return {free, total};
  }

  void give_back(void* pointer) {
    if (!pointer || orIsInBadFork()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(orGetKernelPointer(pointer)));
    TORCH_INTERNAL_ASSERT(found != blocks_.end(), "not a block of the openreg allocator: ", pointer);
    Block* block = found->second;
    DeviceStats& stats = cache_of(block->device).stats;
    const StatType type = block->pool->stat_type();
    block->allocated = false;
    decrease(stats.allocation, type, 1);
    decrease(stats.allocated_bytes, type, block->size);
    decrease(stats.requested_bytes, type, block->requested);
    report(block, -static_cast<int64_t>(block->size), stats);
    if (C10_UNLIKELY(!block->other_streams.empty())) {
      wait_for_other_streams(block);
    } else {
      to_bin(block);
    }
  }

 private:
  std::mutex mutex_;
  std::deque<DeviceCache> caches_;           // by device; never moved
  ska::flat_hash_map<char*, Block*> blocks_; // every block, allocated or not

  DeviceCache& cache_of(DeviceIndex device) {
    if (C10_UNLIKELY(caches_.empty())) {
      caches_.resize(device_count());
    }
    return caches_[device];
  }

  Pool& pool_of(DeviceCache& cache, StreamId stream, size_t size) {
    if (C10_UNLIKELY(cache.streams.size() <= static_cast<size_t>(stream))) {
      cache.streams.resize(stream + 1);
    }
    auto& pools = cache.streams[stream];
    if (C10_UNLIKELY(!pools)) {
      pools = std::make_unique<StreamPools>(stream);
    }
    return size <= kSmallLimit ? pools->small : pools->large;
  }

  void report(const Block* block, int64_t bytes, const DeviceStats& stats) {
    const auto aggregate = static_cast<size_t>(StatType::AGGREGATE);
    c10::reportMemoryUsageToProfiler(
        orGetDevicePointer(block->address),
        bytes,
        stats.allocated_bytes[aggregate].current,
        stats.reserved_bytes[aggregate].current,
        Device(DeviceType::PrivateUse1, block->device));
  }

  char* take(size_t requested, DeviceIndex device) {
    start();
    if (requested == 0) {
      return nullptr;
    }
    check_not_forked();
    const size_t size = std::max(round_up(requested, kMinBlock), kMinBlock);
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        size >= requested && requested < (size_t{1} << 60),
        "OpenReg out of memory. Tried to allocate more than 1EB memory.");
    const StreamId stream = current_stream(device).id();
    std::unique_lock lock(mutex_);
    DeviceCache& cache = cache_of(device);
    if (C10_UNLIKELY(!cache.events.empty())) {
      collect_finished(cache);
    }
    Pool& pool = pool_of(cache, stream, size);
    Block* block = find(cache, pool, size);
    if (C10_UNLIKELY(!block)) {
      block = grow(lock, cache, pool, requested, size, device);
    }
    const size_t remainder = block->size - size;
    if (remainder > 0 && remainder >= (pool.small ? kMinBlock : kSmallLimit + 1)) {
      split(cache, block, size);
    }
    block->allocated = true;
    block->requested = requested;
    DeviceStats& stats = cache.stats;
    const StatType type = pool.stat_type();
    increase(stats.allocation, type, 1);
    increase(stats.allocated_bytes, type, block->size);
    increase(stats.requested_bytes, type, requested);
    increase(stats.active, type, 1);
    increase(stats.active_bytes, type, block->size);
    report(block, static_cast<int64_t>(block->size), stats);
    return block->address;
  }

  Block* find(DeviceCache& cache, Pool& pool, size_t size) {
    if (C10_LIKELY(pool.small)) {
      Block*& bin = pool.bins[size / kMinBlock];
      if (C10_LIKELY(bin != nullptr)) {
        Block* block = bin;
        bin = block->next_in_bin;
        block->binned = false;
        --pool.binned;
        leave_free(cache, block);
        return block;
      }
    }
    for (;;) {
      Block key(nullptr, size, 0, &pool);
      const auto fit = pool.merged.lower_bound(&key);
      if (fit != pool.merged.end()) {
        Block* block = *fit;
        pool.merged.erase(fit);
        leave_free(cache, block);
        return block;
      }
      if (pool.binned == 0) {
        return nullptr;
      }
      merge_bins(cache, pool);
    }
  }

  // A new segment; on failure the cache is emptied and the device asked once more.
  Block* grow(
      std::unique_lock<std::mutex>& lock,
      DeviceCache& cache,
      Pool& pool,
      size_t requested,
      size_t size,
      DeviceIndex device) {
    const size_t segment = pool.small                ? kSmallSegment
                           : size < kOwnSegmentLimit ? kLargeSegment
                                                     : round_up(size, kSegmentRounding);
    const CurrentDevice current(device);
    void* address = nullptr;
    orError_t result = orMalloc(&address, segment);
    if (result == orErrorMemoryAllocation) {
      ++cache.stats.num_alloc_retries;
      release_cached(lock, device);
      result = orMalloc(&address, segment);
    }
    if (result == orErrorMemoryAllocation) {
      ++cache.stats.num_ooms;
      throw_out_of_memory(cache, requested, device);
    }
    OPENREG_CHECK(result);
    auto* block = new Block(static_cast<char*>(orGetKernelPointer(address)), segment, device, &pool);
    blocks_.emplace(block->address, block);
    ++cache.stats.num_device_alloc;
    increase(cache.stats.segment, pool.stat_type(), 1);
    increase(cache.stats.reserved_bytes, pool.stat_type(), segment);
    return block;
  }

  [[noreturn]] void throw_out_of_memory(DeviceCache& cache, size_t requested, DeviceIndex device) {
    const std::string reason = orGetLastErrorMessage(); // read before the next call replaces it
    orGetLastError();
    const auto [free, total] = getMemoryInfo(device);
    const auto aggregate = static_cast<size_t>(StatType::AGGREGATE);
    const size_t allocated = cache.stats.allocated_bytes[aggregate].current;
    const size_t reserved = cache.stats.reserved_bytes[aggregate].current;
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(requested), allocated, reserved, Device(DeviceType::PrivateUse1, device));
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        false,
        "OpenReg out of memory. Tried to allocate ",
        format_size(requested),
        ". Device ",
        static_cast<int>(device),
        " has a total capacity of ",
        format_size(total),
        " of which ",
        format_size(free),
        " is free. Of the allocated memory ",
        format_size(allocated),
        " is allocated by PyTorch, and ",
        format_size(reserved - allocated),
        " is reserved by PyTorch but unallocated. ",
        reason);
  }

  // ---- free blocks: every one is in a bin or in `merged`, and counted as inactive if it is part of a split segment

  void enter_free(DeviceCache& cache, const Block* block) {
    if (block->is_split()) {
      increase(cache.stats.inactive_split, block->pool->stat_type(), 1);
      increase(cache.stats.inactive_split_bytes, block->pool->stat_type(), block->size);
    }
  }

  void leave_free(DeviceCache& cache, const Block* block) {
    if (block->is_split()) {
      decrease(cache.stats.inactive_split, block->pool->stat_type(), 1);
      decrease(cache.stats.inactive_split_bytes, block->pool->stat_type(), block->size);
    }
  }

  void to_bin(Block* block) {
    DeviceCache& cache = cache_of(block->device);
    Pool& pool = *block->pool;
    decrease(cache.stats.active, pool.stat_type(), 1);
    decrease(cache.stats.active_bytes, pool.stat_type(), block->size);
    if (!pool.small || block->size > kSmallLimit) {
      to_merged(cache, block);
      return;
    }
    Block*& bin = pool.bins[block->size / kMinBlock];
    block->next_in_bin = bin;
    block->binned = true;
    bin = block;
    ++pool.binned;
    enter_free(cache, block);
  }

  void merge_bins(DeviceCache& cache, Pool& pool) {
    for (Block*& bin : pool.bins) {
      while (Block* block = bin) {
        bin = block->next_in_bin;
        block->binned = false;
        leave_free(cache, block);
        to_merged(cache, block);
      }
    }
    pool.binned = 0;
  }

  void to_merged(DeviceCache& cache, Block* block) {
    const auto absorb = [&](Block* left, Block* right) {
      left->size += right->size;
      left->next = right->next;
      if (right->next) {
        right->next->previous = left;
      }
      blocks_.erase(right->address);
      delete right;
      return left;
    };
    const auto take_out = [&](Block* other) {
      if (!other || other->allocated || other->binned || other->pending_events > 0) {
        return false;
      }
      leave_free(cache, other);
      block->pool->merged.erase(other);
      return true;
    };
    if (take_out(block->next)) {
      absorb(block, block->next);
    }
    if (take_out(block->previous)) {
      block = absorb(block->previous, block);
    }
    block->pool->merged.insert(block);
    enter_free(cache, block);
  }

  void split(DeviceCache& cache, Block* block, size_t size) {
    auto* rest = new Block(block->address + size, block->size - size, block->device, block->pool);
    rest->previous = block;
    rest->next = block->next;
    if (rest->next) {
      rest->next->previous = rest;
    }
    block->next = rest;
    block->size = size;
    blocks_.emplace(rest->address, rest);
    block->pool->merged.insert(rest);
    enter_free(cache, rest);
  }

  // Gives every segment that is one free block back to the device. Without the lock while it waits for the device, where a
  // host function may be freeing memory.
  void release_cached(std::unique_lock<std::mutex>& lock, DeviceIndex device) {
    DeviceCache& cache = cache_of(device);
    if (!cache.events.empty()) {
      lock.unlock();
      device_synchronize(device);
      lock.lock();
      collect_finished(cache);
    }
    std::vector<void*> segments;
    for (auto& pools : cache.streams) {
      if (!pools) {
        continue;
      }
      for (Pool* pool : {&pools->small, &pools->large}) {
        merge_bins(cache, *pool);
        for (auto it = pool->merged.begin(); it != pool->merged.end();) {
          Block* block = *it;
          if (block->is_split()) {
            ++it;
            continue;
          }
          it = pool->merged.erase(it);
          segments.push_back(orGetDevicePointer(block->address));
          ++cache.stats.num_device_free;
          decrease(cache.stats.segment, pool->stat_type(), 1);
          decrease(cache.stats.reserved_bytes, pool->stat_type(), block->size);
          blocks_.erase(block->address);
          delete block;
        }
      }
    }
    lock.unlock();
    for (void* segment : segments) {
      OPENREG_CHECK(orFree(segment));
    }
    lock.lock();
  }

  // ---- blocks that other streams used: free once an event recorded on each of them has passed

  void wait_for_other_streams(Block* block) {
    DeviceCache& cache = cache_of(block->device);
    for (const Stream& stream : block->other_streams) {
      const orEvent_t event = create_event(stream);
      OPENREG_CHECK(orEventRecord(event, stream_handle(stream)));
      cache.events.emplace_back(event, block);
      ++block->pending_events;
    }
    block->other_streams.clear();
  }

  void collect_finished(DeviceCache& cache) {
    std::deque<std::pair<orEvent_t, Block*>> pending;
    for (auto& [event, block] : cache.events) {
      if (orEventQuery(event) == orErrorNotReady) {
        pending.emplace_back(event, block);
        continue;
      }
      orEventDestroy(event);
      if (--block->pending_events == 0) {
        to_bin(block);
      }
    }
    cache.events = std::move(pending);
  }
};

CachingAllocator* instance() {
  static auto* allocator = new CachingAllocator; // leaked: tensors may outlive static destructors
  return allocator;
}

void free_block(void* address) {
  instance()->give_back(address);
}

REGISTER_ALLOCATOR(DeviceType::PrivateUse1, instance());

} // namespace

OpenRegDeviceAllocator* device_allocator() {
  return instance();
}

} // namespace c10::openreg
