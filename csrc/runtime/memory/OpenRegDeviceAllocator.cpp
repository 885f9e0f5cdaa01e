#include "OpenRegDeviceAllocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>
#include <openreg_faults.h>

#include <deque>
#include <map>
#include <mutex>

#include "../OpenRegMutex.h"
#include "../OpenRegSharing.h"
#include "../OpenRegStorage.h"
#include "../OpenRegStream.h"
#include "OpenRegAllocatorConfig.h"
#include "OpenRegBlockPool.h"
#include "OpenRegRedZone.h"

namespace c10::openreg {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingDeviceAllocator::SegmentInfo;

// CUDACachingAllocator's sizes, in bytes.
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kOwnSegmentLimit = 10 << 20; // from here a request gets a segment of its own
constexpr size_t kSegmentRounding = 2 << 20;

constexpr int kPoison = 0xFF; // NaN in every floating point type, -1 in the signed integers

struct DeviceCache {
  DeviceStats stats;
  DeviceStats unreported; // of temporaries
  PoolSet shared, temporaries;
  std::map<MempoolId_t, std::unique_ptr<PoolSet>> private_sets;
  std::vector<std::pair<PoolSet*, std::function<bool(Stream)>>> routes; // begin_allocate_to_pool()
  std::deque<std::pair<orEvent_t, Block*>> events;
  double fraction = 1;
  size_t allowed = std::numeric_limits<size_t>::max(); // bytes

  DeviceCache() {
    temporaries.of_temporaries = true;
  }
};

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

int64_t total(const StatArray& stat) {
  return stat[static_cast<size_t>(StatType::AGGREGATE)].current;
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
void free_temporary(void* address);

class CachingAllocator final : public OpenRegDeviceAllocator {
 public:
  DataPtr allocate(size_t size) override {
    return allocate_on(size, current_device());
  }

  DataPtr allocate_on(size_t size, DeviceIndex device) override {
    void* address = take(size, device);
    return {address, address, &free_block, Device(DeviceType::PrivateUse1, device)};
  }

  DataPtr allocate_for_kernel(size_t size, DeviceIndex device, bool required) override {
    void* address = orGetKernelPointer(take(size, device, required));
    return {address, address, &free_block, Device(DeviceType::CPU)};
  }

  // Without whatever may wait for the device: this thread is the device.
  DataPtr allocate_temporary(size_t requested) override {
    if (requested <= kSmallLimit) {
      return {};
    }
    const DeviceIndex device = current_device();
    std::unique_lock lock(mutex_);
    DeviceCache& cache = cache_of(device);
    const size_t size = rounded_size(requested);
    BlockPool& pool = pool_of(cache, cache.temporaries, 0, size);
    Block* block = pool.find(size);
    if (!block && !(block = new_segment(cache, pool, segment_size(pool, size), device, nullptr))) {
      return {};
    }
    begin_use(block, pool, size, requested);
    const size_t given = block->size;
    char* const device_address = block->address;
    lock.unlock();
    if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
      orNoteAllocation(device_address, given, nullptr);
    }
    void* address = orGetKernelPointer(device_address);
    if (C10_UNLIKELY(poison_)) {
      std::memset(address, kPoison, given);
    }
    return {address, address, &free_temporary, Device(DeviceType::CPU)};
  }

  DeleterFnPtr raw_deleter() const override {
    return &free_block;
  }

  void copy_data(void* destination, const void* source, size_t size) const override {
    OPENREG_CHECK(orMemcpy(destination, source, size, orMemcpyDeviceToDevice));
  }

  bool initialized() override {
    return started_.load(std::memory_order_acquire) && !orIsInBadFork();
  }

  void emptyCache(MempoolId_t pool) override {
    const auto context = history_.gather(RecordContext::ALL);
    std::unique_lock lock(mutex());
    for (DeviceIndex device = 0; caches_ && device < device_count(); ++device) {
      release_cached(lock, device, context, pool);
    }
  }

  void recordStream(const DataPtr& data, c10::Stream stream) override {
    if (!data.get()) {
      return;
    }
    stream_handle(stream); // refuses a stream of another device type
    if (C10_UNLIKELY(orIsObserved(orActivityUse))) {
      orNoteUse(data.get(), stream_handle(stream));
    }
    const std::lock_guard lock(mutex());
    Block* block = find_block(data.get());
    if (!block) {
      return; // memory of another owner, as an imported DLPack tensor: its owner keeps it alive
    }
    auto& streams = block->other_streams;
    if (stream != stream_of(block) && std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  }

  // ---- statistics

  DeviceStats getDeviceStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    DeviceStats stats = cache_of(device).stats;
    stats.max_split_size = static_cast<int64_t>(AcceleratorAllocatorConfig::max_split_size());
    return stats;
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    DeviceStats& stats = cache_of(device).stats;
    for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
    stats.num_alloc_retries = stats.num_ooms = stats.num_sync_all_streams = 0;
    stats.num_device_alloc = stats.num_device_free = 0;
  }

  void resetPeakStats(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    for_each_stat(cache_of(device).stats, [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const CurrentDevice current(device);
    size_t free = 0, total = 0;
    OPENREG_CHECK(orMemGetInfo(&free, &total));
    return {free, total};
  }

  double memory_fraction(DeviceIndex device) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    return cache_of(device).fraction;
  }

  void set_memory_fraction(double fraction, DeviceIndex device) override {
    check_device_index(device);
    TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
    const size_t total = getMemoryInfo(device).second;
    const std::lock_guard lock(mutex());
    DeviceCache& cache = cache_of(device);
    cache.fraction = fraction;
    cache.allowed = static_cast<size_t>(fraction * static_cast<double>(total));
  }

  // ---- memory pools

  void use_pool(DeviceIndex device, MempoolId_t id) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    use(cache_of(device), id);
  }

  void release_pool(DeviceIndex device, MempoolId_t id) override {
    if (orIsInBadFork()) { // the caller is a destructor
      return;
    }
    std::unique_lock lock(mutex());
    PoolSet& set = private_set(device, id);
    TORCH_INTERNAL_ASSERT(set.use_count > 0);
    if (--set.use_count == 0) {
      std::vector<BlockPool*> pools;
      set.append_to(pools);
      release_segments(lock, pools, nullptr, [](const Block*) { return true; });
      forget_empty_sets(cache_of(device));
    }
  }

  int pool_use_count(DeviceIndex device, MempoolId_t id) override {
    const std::lock_guard lock(mutex());
    return private_set(device, id).use_count;
  }

  void set_pool_policy(DeviceIndex device, MempoolId_t id, bool use_on_oom, bool no_split) override {
    const std::lock_guard lock(mutex());
    PoolSet& set = private_set(device, id);
    set.use_on_oom = use_on_oom;
    set.no_split = no_split;
  }

  void begin_allocate_to_pool(DeviceIndex device, MempoolId_t id, std::function<bool(Stream)> filter) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    DeviceCache& cache = cache_of(device);
    for (const auto& [set, other] : cache.routes) {
      TORCH_CHECK(set->id != id, "beginAllocateToPool: already recording to mempool_id");
    }
    cache.routes.emplace_back(&use(cache, id), std::move(filter));
  }

  void end_allocate_to_pool(DeviceIndex device, MempoolId_t id) override {
    check_device_index(device);
    const std::lock_guard lock(mutex());
    auto& routes = cache_of(device).routes;
    const auto found = std::find_if(routes.begin(), routes.end(), [&](auto& route) { return route.first->id == id; });
    TORCH_CHECK(found != routes.end(), "endAllocatePool: not currently recording to mempool_id");
    routes.erase(found);
  }

  // ---- history

  void record_history(std::optional<HistoryOptions> options, bool clear) override {
    const std::lock_guard lock(mutex());
    if (clear) {
      history_.clear();
    }
    if (options) {
      history_.start(std::move(*options), device_count());
    } else {
      history_.stop();
    }
  }

  bool history_enabled() override {
    return history_.enabled();
  }

  MemorySnapshot snapshot(MempoolId_t pool, bool traces) override {
    const std::lock_guard lock(mutex());
    MemorySnapshot result;
    for (const auto& [address, block] : blocks_) {
      if (!block->previous && (pool == MempoolId_t{0, 0} || block->pool->owner->id == pool)) {
        result.segments.push_back(segment_info(block));
      }
    }
    std::sort(result.segments.begin(), result.segments.end(), [](const auto& a, const auto& b) {
      return a.address < b.address;
    });
    for (DeviceIndex device = 0; caches_ && device < device_count(); ++device) {
      const auto active = total(caches_[device].stats.active_bytes);
      history_.record(TraceEntry::SNAPSHOT, device, nullptr, active, 0, {0, 0}, nullptr);
    }
    if (traces) {
      result.device_traces = history_.entries();
    }
    result.device_traces.resize(device_count());
    return result;
  }

  std::shared_ptr<GatheredContext> context_of(const void* address) override {
    const std::lock_guard lock(mutex());
    const Block* block = find_block(address);
    return block && block->allocated ? block->context : nullptr;
  }

  void attach_out_of_memory_observer(OutOfMemoryObserver observer) override {
    const std::lock_guard lock(mutex());
    observers_.push_back(std::move(observer));
  }

  void give_back_temporary(void* pointer) {
    if (!orIsInBadFork()) {
      if (C10_UNLIKELY(orIsObserved(orActivityFree))) {
        note_free(pointer);
      }
      const std::lock_guard lock(mutex_);
      put_temporary(find_block(pointer));
    }
  }

  void give_back(void* pointer) {
    if (!pointer || orIsInBadFork()) {
      return;
    }
    const auto context = history_.gather(RecordContext::ALL);
    if (C10_UNLIKELY(orIsObserved(orActivityFree))) {
      note_free(pointer);
    }
    {
      std::unique_lock lock(mutex_);
      Block* block = block_at(pointer);
      TORCH_CHECK(block && block->allocated, "invalid device pointer: ", pointer);
      if (C10_UNLIKELY(block->pool->owner->of_temporaries)) { // from raw_allocate()
        return put_temporary(block);
      }
      DeviceStats& stats = cache_of(block->device).stats;
      const StatType type = block->pool->stat_type();
      block->allocated = false;
      decrease(stats.allocation, type, 1);
      decrease(stats.allocated_bytes, type, block->size);
      decrease(stats.requested_bytes, type, block->requested);
      if (C10_UNLIKELY(is_oversize(block->size))) {
        stats.oversize_allocations.decrease(1);
      }
      history(TraceEntry::FREE_REQUESTED, block, context ? context : block->context);
      report(block, -static_cast<int64_t>(block->size), stats);
      if (C10_UNLIKELY(!block->other_streams.empty())) {
        wait_for_other_streams(block);
      } else if (C10_LIKELY(!poison_) || poison_before_reuse(lock, block)) {
        free_completed(block, context);
      }
    }
    if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
      (*trace)->trace_gpu_memory_deallocation(
          DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(orGetDevicePointer(pointer)));
    }
  }

 private:
  Mutex mutex_;
  std::unique_ptr<DeviceCache[]> caches_; // by device
  BlockTable blocks_;
  MemoryHistory history_;
  std::vector<OutOfMemoryObserver> observers_;
  std::atomic<bool> started_{false};
  bool poison_ = false;

  // Where a forked child may come: the lock may be held for ever, and what it guards describes memory that is gone.
  Mutex& mutex() {
    check_not_forked();
    return mutex_;
  }

  void set_up() {
    read_allocator_settings();
    poison_ = poison_is_on();
    caches_ = std::make_unique<DeviceCache[]>(device_count());
    started_.store(true, std::memory_order_release);
  }

  DeviceCache& cache_of(DeviceIndex device) {
    if (C10_UNLIKELY(!caches_)) {
      set_up();
    }
    return caches_[device];
  }

  C10_ALWAYS_INLINE Block* block_at(const void* pointer) {
    const auto found = blocks_.find(static_cast<char*>(orGetDevicePointer(pointer)));
    return found == blocks_.end() ? nullptr : found->second;
  }

  // The same, for all but give_back(), into which the compiler puts the search if nobody else has it.
  C10_NOINLINE Block* find_block(const void* pointer) {
    return block_at(pointer);
  }

  static Stream stream_of(const Block* block) {
    return Stream(Stream::UNSAFE, Device(DeviceType::PrivateUse1, block->device), block->pool->stream);
  }

  static bool is_oversize(size_t size) {
    return size > kSmallLimit && size >= AcceleratorAllocatorConfig::max_split_size();
  }

  // ---- where a request goes

  PoolSet& private_set(DeviceIndex device, MempoolId_t id) {
    check_device_index(device);
    auto& sets = cache_of(device).private_sets;
    const auto found = sets.find(id);
    TORCH_CHECK(found != sets.end(), "Could not find pool of id: ", id.first, ", ", id.second);
    return *found->second;
  }

  PoolSet& use(DeviceCache& cache, MempoolId_t id) {
    auto& set = cache.private_sets[id];
    if (!set) {
      set = std::make_unique<PoolSet>();
      set->id = id;
    }
    ++set->use_count;
    return *set;
  }

  PoolSet& set_for(DeviceCache& cache, Stream stream) {
    for (const auto& [set, takes] : cache.routes) {
      if (takes(stream)) {
        return *set;
      }
    }
    return cache.shared;
  }

  C10_NOINLINE void add_pools(DeviceCache& cache, PoolSet& set, StreamId stream) {
    if (set.streams.size() <= static_cast<size_t>(stream)) {
      set.streams.resize(stream + 1);
    }
    set.streams[stream] =
        std::make_unique<StreamPools>(stream, &set, set.of_temporaries ? &cache.unreported : &cache.stats, &blocks_);
  }

  BlockPool& pool_of(DeviceCache& cache, PoolSet& set, StreamId stream, size_t size) {
    if (C10_UNLIKELY(set.streams.size() <= static_cast<size_t>(stream) || !set.streams[stream])) {
      add_pools(cache, set, stream);
    }
    const auto& pools = set.streams[stream];
    return size <= kSmallLimit ? pools->small : pools->large;
  }

  // ---- allocating

  char* take(size_t requested, DeviceIndex device, bool required = true) {
    start();
    if (requested == 0) {
      return nullptr;
    }
    check_not_forked();
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        requested < (size_t{1} << 60),
        "OpenReg out of memory. Tried to allocate more than 1EB memory.");
    const Stream stream = current_stream(device);
    const auto context = history_.gather(RecordContext::STATE);
    bool is_full = false;
    if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
      is_full = meets_fault(device, requested);
    }
    std::unique_lock lock(mutex_);
    DeviceCache& cache = cache_of(device);
    const size_t size = rounded_size(requested + red_zone.load(std::memory_order_relaxed));
    if (C10_UNLIKELY(is_full)) {
      throw_out_of_memory(lock, cache, requested, stream.id(), device, context);
    }
    if (C10_UNLIKELY(!cache.events.empty())) {
      collect_finished(lock, cache, context);
    }
    BlockPool* pool = &pool_of(cache, set_for(cache, stream), stream.id(), size);
    Block* block = pool->find(size);
    if (C10_UNLIKELY(!block)) {
      block = grow(lock, cache, *pool, requested, size, device, required, context);
      if (!block) {
        return nullptr;
      }
      pool = block->pool;
    }
    begin_use(block, *pool, size, requested);
    block->context = context;
    DeviceStats& stats = cache.stats;
    const StatType type = pool->stat_type();
    increase(stats.allocation, type, 1);
    increase(stats.allocated_bytes, type, block->size);
    increase(stats.requested_bytes, type, requested);
    increase(stats.active, type, 1);
    increase(stats.active_bytes, type, block->size);
    if (C10_UNLIKELY(is_oversize(block->size))) {
      stats.oversize_allocations.increase(1);
    }
    history(TraceEntry::ALLOC, block, context);
    report(block, static_cast<int64_t>(block->size), stats);
    char* address = block->address;
    lock.unlock();
    if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
      orNoteAllocation(address, requested, stream_handle(stream));
    }
    if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
      (*trace)->trace_gpu_memory_allocation(DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(address));
    }
    return address;
  }

  // Whether a test wants the device to be full. Throws any other error that it wants.
  static bool meets_fault(DeviceIndex device, size_t size) {
    const orError_t error = orRequestAllocation(device, size);
    if (error != orErrorMemoryAllocation) {
      OPENREG_CHECK(error);
    }
    return error == orErrorMemoryAllocation;
  }

  static void begin_use(Block* block, BlockPool& pool, size_t size, size_t requested) {
    if (const size_t remainder = block->size - size; remainder > 0 && may_split(pool, size, remainder)) {
      pool.split(block, size);
    }
    block->allocated = true;
    block->requested = requested;
  }

  static bool may_split(const BlockPool& pool, size_t size, size_t remainder) {
    if (pool.owner->no_split) {
      return false;
    }
    return pool.small ? remainder >= kMinBlock
                      : remainder > kSmallLimit && size < AcceleratorAllocatorConfig::max_split_size();
  }

  static size_t segment_size(const BlockPool& pool, size_t size) {
    return pool.small                ? kSmallSegment
           : size < kOwnSegmentLimit ? AcceleratorAllocatorConfig::large_segment_size()
                                     : (size + kSegmentRounding - 1) / kSegmentRounding * kSegmentRounding;
  }

  // A block of a new segment. Where the device has no room left, gives back what is cached, step by step, and tries
  // again.
  Block* grow(
      std::unique_lock<Mutex>& lock,
      DeviceCache& cache,
      BlockPool& pool,
      size_t requested,
      size_t size,
      DeviceIndex device,
      bool required,
      const std::shared_ptr<GatheredContext>& context) {
    if (AcceleratorAllocatorConfig::garbage_collection_threshold() > 0) {
      release_oldest(lock, cache, device, context);
    }
    const size_t segment = segment_size(pool, size);
    const CurrentDevice current(device);
    Block* block = new_segment(cache, pool, segment, device, context);
    if (!block && release_oversize(lock, pool, segment, context)) {
      block = new_segment(cache, pool, segment, device, context);
    }
    if (!block) {
      release_cached(lock, device, context, {0, 0});
      ++cache.stats.num_alloc_retries;
      block = new_segment(cache, pool, segment, device, context);
    }
    if (!block && !pool.owner->is_private()) {
      for (auto& [id, set] : cache.private_sets) {
        if (set->use_on_oom && (block = pool_of(cache, *set, pool.stream, size).find(size))) {
          return block;
        }
      }
    }
    if (!block && !required) {
      return nullptr;
    }
    if (!block) {
      throw_out_of_memory(lock, cache, requested, pool.stream, device, context);
    }
    if (C10_UNLIKELY(poison_)) {
      lock.unlock(); // nobody else can find the block yet
      OPENREG_CHECK(poison(block));
      lock.lock();
    }
    return block;
  }

  // Null if the device has no room, or this process may not have it.
  Block* new_segment(
      DeviceCache& cache,
      BlockPool& pool,
      size_t size,
      DeviceIndex device,
      const std::shared_ptr<GatheredContext>& context) {
    if (total(cache.stats.reserved_bytes) + size > cache.allowed) {
      return nullptr;
    }
    void* address = nullptr;
    const orError_t result = orMalloc(&address, size);
    if (result == orErrorMemoryAllocation) {
      return nullptr;
    }
    OPENREG_CHECK(result);
    auto* block = new Block(static_cast<char*>(address), size, device, &pool);
    block->segment_context = context;
    blocks_.emplace(block->address, block);
    count_segment(cache, pool, size, true);
    ++cache.stats.num_device_alloc;
    ++pool.owner->segments;
    if (is_oversize(size)) {
      cache.stats.oversize_segments.increase(1);
    }
    history(TraceEntry::SEGMENT_ALLOC, block, context, size);
    return block;
  }

  static void count_segment(DeviceCache& cache, const BlockPool& pool, size_t size, bool is_new) {
    const auto change = [&](StatArray& stat, size_t amount) {
      is_new ? increase(stat, pool.stat_type(), amount) : decrease(stat, pool.stat_type(), amount);
    };
    change(cache.stats.segment, 1);
    change(cache.stats.reserved_bytes, size);
    if (pool.owner->is_private()) {
      change(cache.stats.reserved_bytes_by_private_pools[pool.owner->id], size);
    }
  }

  [[noreturn]] void throw_out_of_memory(
      std::unique_lock<Mutex>& lock,
      DeviceCache& cache,
      size_t requested,
      StreamId stream,
      DeviceIndex device,
      const std::shared_ptr<GatheredContext>& context) {
    ++cache.stats.num_ooms;
    const auto [device_free, device_total] = getMemoryInfo(device);
    const size_t allocated = total(cache.stats.allocated_bytes);
    const size_t reserved = total(cache.stats.reserved_bytes);
    size_t in_private_pools = 0;
    for (const auto& [id, stat] : cache.stats.reserved_bytes_by_private_pools) {
      in_private_pools += total(stat);
    }
    const bool limited = cache.fraction < 1;
    const std::string allowed = limited ? format_size(cache.allowed) + " allowed; " : "";
    history_.record(TraceEntry::OOM, device, reinterpret_cast<void*>(device_free), requested, stream, {0, 0}, context);
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(requested), allocated, reserved, Device(DeviceType::PrivateUse1, device));
    const auto observers = observers_;
    const size_t limit = limited ? cache.allowed : device_total;
    lock.unlock(); // an observer may wait for the GIL
    for (const auto& observer : observers) {
      observer(device, requested, limit, device_free);
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        false,
        "OpenReg out of memory. Tried to allocate ",
        format_size(requested),
        ". Device ",
        static_cast<int>(device),
        " has a total capacity of ",
        format_size(device_total),
        " of which ",
        format_size(device_free),
        " is free. This process has ",
        format_size(device_total - device_free),
        " memory in use. ",
        allowed,
        "Of the allocated memory ",
        format_size(allocated),
        " is allocated by PyTorch",
        in_private_pools ? ", with " + format_size(in_private_pools) + " reserved in private pools" : "",
        ", and ",
        format_size(reserved - allocated),
        " is reserved by PyTorch but unallocated. Free tensors, use a smaller batch, or set OPENREG_DEVICE_MEMORY "
        "higher.");
  }

  // ---- freeing

  void free_completed(Block* block, const std::shared_ptr<GatheredContext>& context) {
    DeviceStats& stats = cache_of(block->device).stats;
    decrease(stats.active, block->pool->stat_type(), 1);
    decrease(stats.active_bytes, block->pool->stat_type(), block->size);
    history(TraceEntry::FREE_COMPLETED, block, context ? context : block->context);
    block->context.reset();
    block->pool->put(block);
  }

  static void put_temporary(Block* block) {
    block->allocated = false;
    block->pool->put(block);
  }

  // A block that other streams used is free once an event recorded on each of them has passed.
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

  void collect_finished(
      std::unique_lock<Mutex>& lock, DeviceCache& cache, const std::shared_ptr<GatheredContext>& context) {
    std::vector<Block*> finished;
    std::deque<std::pair<orEvent_t, Block*>> pending;
    for (auto& [event, block] : cache.events) {
      if (orEventQuery(event) == orErrorNotReady) {
        pending.emplace_back(event, block);
        continue;
      }
      orEventDestroy(event);
      if (block->pending_events == 1) {
        finished.push_back(block); // keeps its count, so that no neighbour merges with it yet
      } else {
        --block->pending_events;
      }
    }
    cache.events = std::move(pending);
    for (Block* block : finished) {
      if (C10_UNLIKELY(poison_) && !poison_before_reuse(lock, block)) {
        continue;
      }
      block->pending_events = 0;
      free_completed(block, context);
    }
  }

  // ---- OPENREG_POISON: free memory holds nothing but NaN. It is filled in the order of the block's stream, as by a
  // kernel.

  static orError_t poison(const Block* block) {
    const Stream stream = stream_of(block);
    if (KernelAllocations::active() &&
        current_stream(block->device) == stream) { // this thread's kernel is that stream's work
      std::memset(orGetKernelPointer(block->address), kPoison, block->size);
      return orSuccess;
    }
    return orMemsetAsync(block->address, kPoison, block->size, stream_handle(stream));
  }

  // True once it is done. Until then the block waits as for another stream: a kernel that runs on its launching thread
  // must not get it yet.
  bool poison_before_reuse(std::unique_lock<Mutex>& lock, Block* block) {
    if (block->poisoned) {
      block->poisoned = false;
      return true;
    }
    block->pending_events = 1; // so that no neighbour merges with it
    lock.unlock();
    OPENREG_CHECK(poison(block));
    const orEvent_t event = create_event(stream_of(block));
    OPENREG_CHECK(orEventRecord(event, stream_handle(stream_of(block))));
    const bool done = orEventQuery(event) == orSuccess;
    lock.lock();
    if (done) {
      orEventDestroy(event);
      block->pending_events = 0;
    } else {
      block->poisoned = true;
      cache_of(block->device).events.emplace_back(event, block);
    }
    return done;
  }

  // ---- giving segments back

  // Gives back the free segments of `pools` that `chosen` wants. Without the lock while it waits for the device.
  template <class Chosen>
  void release_segments(
      std::unique_lock<Mutex>& lock,
      const std::vector<BlockPool*>& pools,
      const std::shared_ptr<GatheredContext>& context,
      const Chosen& chosen) {
    std::vector<std::unique_ptr<Block>> segments;
    for (BlockPool* pool : pools) {
      pool->take_segments([&](Block* block) { return chosen(block) && (segments.emplace_back(block), true); });
    }
    for (const auto& block : segments) {
      DeviceCache& cache = cache_of(block->device);
      count_segment(cache, *block->pool, block->size, false);
      ++cache.stats.num_device_free;
      --block->pool->owner->segments;
      if (is_oversize(block->size)) {
        cache.stats.oversize_segments.decrease(1);
      }
      history(TraceEntry::SEGMENT_FREE, block.get(), context ? context : block->segment_context, block->size);
    }
    lock.unlock();
    for (const auto& block : segments) {
      OPENREG_CHECK(orFree(block->address));
    }
    lock.lock();
  }

  // Everything that is free: of the shared pools and of the private ones that nobody uses any more; or of pool `id`, if
  // nobody uses that.
  void release_cached(
      std::unique_lock<Mutex>& lock,
      DeviceIndex device,
      const std::shared_ptr<GatheredContext>& context,
      MempoolId_t id) {
    DeviceCache& cache = cache_of(device);
    lock.unlock();
    collect_shared();
    lock.lock();
    ++cache.stats.num_sync_all_streams;
    // Twice with poison, which is queued when the other streams have passed.
    for (int pass = 0; pass < (poison_ ? 2 : 1) && !cache.events.empty(); ++pass) {
      lock.unlock();
      device_synchronize(device);
      lock.lock();
      collect_finished(lock, cache, context);
    }
    std::vector<BlockPool*> pools;
    if (id == MempoolId_t{0, 0}) {
      cache.shared.append_to(pools);
      cache.temporaries.append_to(pools);
    }
    for (auto& [private_id, set] : cache.private_sets) {
      if (set->use_count == 0 && (id == MempoolId_t{0, 0} || id == private_id)) {
        set->append_to(pools);
      }
    }
    release_segments(lock, pools, context, [](const Block*) { return true; });
    forget_empty_sets(cache);
  }

  static void forget_empty_sets(DeviceCache& cache) {
    std::erase_if(cache.private_sets, [](const auto& entry) {
      return entry.second->use_count == 0 && entry.second->segments == 0;
    });
  }

  // max_split_size_mb: blocks above it, which only requests of that size use, go first.
  bool release_oversize(
      std::unique_lock<Mutex>& lock, BlockPool& pool, size_t wanted, const std::shared_ptr<GatheredContext>& context) {
    size_t released = 0;
    release_segments(lock, {&pool}, context, [&](const Block* block) {
      const bool chosen = is_oversize(block->size) && released < wanted;
      released += chosen ? block->size : 0;
      return chosen;
    });
    return released > 0;
  }

  // garbage_collection_threshold: when more than this share of what the process may have is reserved, the large segments
  // that have been free for longest go, without waiting for other streams.
  void release_oldest(
      std::unique_lock<Mutex>& lock,
      DeviceCache& cache,
      DeviceIndex device,
      const std::shared_ptr<GatheredContext>& context) {
    const size_t capacity = std::min(cache.allowed, getMemoryInfo(device).second);
    const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold() * static_cast<double>(capacity);
    const double excess = static_cast<double>(total(cache.stats.reserved_bytes)) - threshold;
    if (excess <= 0) {
      return;
    }
    std::vector<BlockPool*> pools;
    cache.shared.append_to(pools);
    std::erase_if(pools, [](const BlockPool* pool) { return pool->small; });
    std::multimap<uint64_t, size_t, std::greater<>> free_segments; // bytes by age, oldest first
    for (BlockPool* pool : pools) {
      pool->take_segments([&](const Block* block) {
        free_segments.emplace(pool->age(block), block->size);
        return false;
      });
    }
    double released = 0;
    uint64_t youngest = std::numeric_limits<uint64_t>::max();
    for (auto it = free_segments.begin(); it != free_segments.end() && released < excess; ++it) {
      released += static_cast<double>(it->second);
      youngest = it->first;
    }
    release_segments(lock, pools, context, [&](const Block* block) { return block->pool->age(block) >= youngest; });
  }

  // ---- telling others

  // Before anybody else can get the block.
  C10_NOINLINE void note_free(const void* pointer) {
    size_t size = 0;
    orStream_t stream = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const Block* block = find_block(pointer)) {
        size = block->size;
        stream = block->pool->owner->of_temporaries ? nullptr : stream_handle(stream_of(block));
      }
    }
    orNoteFree(orGetDevicePointer(pointer), size, stream);
  }

  static void report(const Block* block, int64_t bytes, const DeviceStats& stats) {
    c10::reportMemoryUsageToProfiler(
        block->address,
        bytes,
        total(stats.allocated_bytes),
        total(stats.reserved_bytes),
        Device(DeviceType::PrivateUse1, block->device));
  }

  void history(
      TraceEntry::Action action,
      const Block* block,
      const std::shared_ptr<GatheredContext>& context,
      std::optional<size_t> size = std::nullopt) {
    history_.record(
        action,
        block->device,
        block->address,
        size.value_or(block->requested),
        block->pool->stream,
        block->pool->owner->id,
        context);
  }

  static SegmentInfo segment_info(const Block* first) {
    SegmentInfo info;
    info.device = first->device;
    info.address = reinterpret_cast<size_t>(first->address);
    info.stream = reinterpret_cast<void*>(first->pool->stream);
    info.is_large = !first->pool->small;
    info.owner_private_pool_id = first->pool->owner->id;
    info.context_when_allocated = first->segment_context;
    for (const Block* block = first; block; block = block->next) {
      auto& part = info.blocks.emplace_back();
      part.size = block->size;
      part.requested_size = block->allocated ? block->requested : 0;
      part.gc_counter = static_cast<int32_t>(block->pool->age(block));
      part.allocated = block->allocated;
      part.active = block->allocated || block->pending_events > 0;
      part.context_when_allocated = block->context;
      info.total_size += block->size;
      info.requested_size += part.requested_size;
      info.allocated_size += part.allocated ? block->size : 0;
      info.active_size += part.active ? block->size : 0;
    }
    return info;
  }
};

CachingAllocator* instance() {
  static auto* allocator = new CachingAllocator; // leaked: tensors may outlive static destructors
  return allocator;
}

void free_block(void* address) {
  instance()->give_back(address);
}

void free_temporary(void* address) {
  instance()->give_back_temporary(address);
}

// LITERALINCLUDE START: DEVICE ALLOCATOR REGISTRATION
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, instance());
// LITERALINCLUDE END: DEVICE ALLOCATOR REGISTRATION

} // namespace

std::atomic<size_t> red_zone{0};

OpenRegDeviceAllocator* device_allocator() {
  return instance();
}

} // namespace c10::openreg
