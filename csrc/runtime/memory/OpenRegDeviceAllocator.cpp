#include "runtime/memory/OpenRegDeviceAllocator.h"

#include <c10/core/AllocatorConfig.h>
#include <openreg_activity.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "runtime/OpenRegIdentity.h"
#include "runtime/memory/OpenRegCachingAllocator.h"

namespace c10::openreg {
namespace {

// ---- deleters

// The deleters of DataPtrs. A deleter gets only an address. Each device has deleters of its own, so that a deleter need
// not find out to which device the address belongs. Only free_raw() has to find out.
std::array<DeviceCachingAllocator*, kMaxDevices> device_allocators{}; // leaked, as device_allocator() is

template <size_t device>
void free_block(void* address) {
  if (address && !orIsInBadFork()) {
    device_allocators[device]->free(address);
  }
}

template <size_t... devices>
constexpr std::array<DeleterFnPtr, sizeof...(devices)> make_deleters(std::index_sequence<devices...>) {
  return {&free_block<devices>...};
}

constexpr auto deleters = make_deleters(std::make_index_sequence<kMaxDevices>());

// Calls fn(stat) for each statistic that has a peak.
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

// The segment whose first block is `first`.
SegmentInfo segment_info(const Block* first) {
  SegmentInfo info;
  info.device = first->device;
  info.address = reinterpret_cast<size_t>(first->address);
  info.stream = reinterpret_cast<void*>(first->pool->stream);
  info.is_large = !first->pool->is_small;
  info.owner_private_pool_id = first->pool->owner->id;
  info.context_when_allocated = first->context_when_segment_allocated;
  for (const Block* block = first; block; block = block->next) {
    auto& part = info.blocks.emplace_back();
    part.size = block->size;
    part.requested_size = block->allocated ? block->requested_size : 0;
    part.gc_counter = static_cast<int32_t>(block->pool->age(block));
    part.allocated = block->allocated;
    part.active = block->allocated || block->event_count > 0;
    part.context_when_allocated = block->context_when_allocated;
    info.total_size += block->size;
    info.requested_size += part.requested_size;
    info.allocated_size += part.allocated ? block->size : 0;
    info.active_size += part.active ? block->size : 0;
  }
  return info;
}

// Merges free neighbours: programs compare the blocks with those that CUDA's allocator has.
void merge_free_blocks(const DeviceState& state) {
  std::set<BlockPool*> pools;
  for (const auto& [address, block] : state.blocks) {
    pools.insert(block->pool);
  }
  for (BlockPool* pool : pools) {
    pool->merge_bins(); // removes blocks from the table
  }
}

// The segments of the MemPool `id`, in no order; {0, 0}: all segments. Adds an entry to the history. To be called with
// the lock held.
std::vector<SegmentInfo> take_snapshot(DeviceState& state, MempoolId_t id) {
  merge_free_blocks(state);
  std::vector<SegmentInfo> segments;
  for (const auto& [address, block] : state.blocks) {
    if (!block->previous && (id == MempoolId_t{0, 0} || block->pool->owner->id == id)) {
      segments.push_back(segment_info(block));
    }
  }
  state.history.record(TraceEntry::SNAPSHOT, nullptr, current(state.stats.active_bytes), 0, {0, 0}, nullptr);
  return segments;
}

// Converts the times in the histories of all devices. Made by the first record_history() or snapshot().
ApproximateClockToUnixTimeConverter& trace_clock() {
  static ApproximateClockToUnixTimeConverter clock;
  return clock;
}

} // namespace

OpenRegDeviceAllocator* device_allocator() {
  static auto* allocator = new OpenRegDeviceAllocator; // leaked: tensors may outlive static destructors
  return allocator;
}

// ---- devices

C10_NOINLINE void OpenRegDeviceAllocator::init() {
  const std::lock_guard lock(init_mutex_);
  if (!initialized_.load(std::memory_order_relaxed)) {
    read_allocator_settings();
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      device_allocators[device] = new DeviceCachingAllocator(device);
    }
    initialized_.store(true, std::memory_order_release);
    if (const double fraction = memory_fraction_at_start(); fraction < 1) {
      for (DeviceIndex device = 0; device < device_count(); ++device) {
        set_memory_fraction(fraction, device);
      }
    }
  }
}

C10_ALWAYS_INLINE DeviceCachingAllocator& OpenRegDeviceAllocator::at(DeviceIndex device) {
  if (C10_UNLIKELY(!initialized_.load(std::memory_order_acquire))) {
    init();
  }
  return *device_allocators[device];
}

DeviceCachingAllocator& OpenRegDeviceAllocator::checked(DeviceIndex device) {
  check_device_index(device);
  return at(device);
}

// The allocator of the device that has a block at `pointer`; null if no device has one.
DeviceCachingAllocator* OpenRegDeviceAllocator::owner_of(const void* pointer) {
  check_not_forked();
  if (initialized()) {
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      if (at(device).with_lock([&](const DeviceState& state) { return state.find_block(pointer) != nullptr; })) {
        return &at(device);
      }
    }
  }
  return nullptr;
}

// ---- memory

[[noreturn]] C10_NOINLINE static void throw_too_large() {
  TORCH_CHECK_WITH(OutOfMemoryError, false, identity.name, " out of memory. Tried to allocate more than 1EB memory.");
}

char* OpenRegDeviceAllocator::malloc(size_t size, DeviceIndex device) {
  start();
  if (size == 0) {
    return nullptr;
  }
  check_not_forked();
  if (C10_UNLIKELY(size >= size_t{1} << 60)) {
    throw_too_large();
  }
  return at(device).malloc(size);
}

DataPtr OpenRegDeviceAllocator::allocate(size_t size) {
  return allocate_on(size, current_device());
}

DataPtr OpenRegDeviceAllocator::allocate_on(size_t size, DeviceIndex device) {
  return own(malloc(size, device), device);
}

DataPtr OpenRegDeviceAllocator::own(void* address, DeviceIndex device) {
  return {address, address, deleters[device], Device(identity.type, device)};
}

DataPtr OpenRegDeviceAllocator::allocate_for_kernel(size_t size, DeviceIndex device) {
  void* address = orGetKernelPointer(malloc(size, device));
  return {address, address, deleters[device], Device(DeviceType::CPU)};
}

void OpenRegDeviceAllocator::free_raw(void* address) {
  if (address && !orIsInBadFork()) {
    DeviceCachingAllocator* const owner = device_allocator()->owner_of(address);
    TORCH_CHECK(owner, "invalid device pointer: ", address);
    owner->free(address);
  }
}

DeleterFnPtr OpenRegDeviceAllocator::raw_deleter() const {
  return &free_raw;
}

void OpenRegDeviceAllocator::copy_data(void* destination, const void* source, size_t size) const {
  OPENREG_CHECK(orMemcpy(destination, source, size, orMemcpyDeviceToDevice));
}

bool OpenRegDeviceAllocator::initialized() {
  return initialized_.load(std::memory_order_acquire) && !orIsInBadFork();
}

void OpenRegDeviceAllocator::emptyCache(MempoolId_t pool) {
  check_not_forked();
  if (initialized()) {
    trigger_free_memory_callbacks();
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      at(device).emptyCache(pool);
    }
  }
}

void OpenRegDeviceAllocator::recordStream(const DataPtr& data, c10::Stream stream) {
  if (!data.get()) {
    return;
  }
  const orStream_t handle = OpenRegStream(stream).stream(); // refuses a stream of another device type
  if (C10_UNLIKELY(orIsObserved(orActivityUse))) {
    orNoteUse(data.get(), handle);
  }
  if (DeviceCachingAllocator* const owner = owner_of(data.get())) {
    owner->recordStream(data.get(), stream);
  }
}

// ---- statistics and limits

CachingDeviceAllocator::DeviceStats OpenRegDeviceAllocator::getDeviceStats(DeviceIndex device) {
  DeviceStats stats = checked(device).with_lock([](const DeviceState& state) { return state.stats; });
  stats.max_split_size = static_cast<int64_t>(CachingAllocator::AcceleratorAllocatorConfig::max_split_size());
  return stats;
}

void OpenRegDeviceAllocator::resetAccumulatedStats(DeviceIndex device) {
  checked(device).with_lock([](DeviceState& state) {
    for_each_stat(state.stats, [](auto& stat) { stat.reset_accumulated(); });
    state.stats.num_alloc_retries = state.stats.num_ooms = state.stats.num_sync_all_streams = 0;
    state.stats.num_device_alloc = state.stats.num_device_free = 0;
  });
}

void OpenRegDeviceAllocator::resetPeakStats(DeviceIndex device) {
  checked(device).with_lock(
      [](DeviceState& state) { for_each_stat(state.stats, [](auto& stat) { stat.reset_peak(); }); });
}

std::pair<size_t, size_t> OpenRegDeviceAllocator::getMemoryInfo(DeviceIndex device) {
  return memory_info(device);
}

double OpenRegDeviceAllocator::memory_fraction(DeviceIndex device) {
  return checked(device).with_lock([](const DeviceState& state) { return state.memory_fraction; });
}

void OpenRegDeviceAllocator::set_memory_fraction(double fraction, DeviceIndex device) {
  check_device_index(device);
  TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  const size_t total = memory_info(device).second;
  at(device).with_lock([&](DeviceState& state) {
    state.memory_fraction = fraction;
    state.allowed_memory = static_cast<size_t>(fraction * static_cast<double>(total));
  });
}

// ---- memory pools

void OpenRegDeviceAllocator::use_pool(DeviceIndex device, MempoolId_t id) {
  checked(device).with_lock([&](DeviceState& state) { state.pools.create_or_incref_pool(id); });
}

void OpenRegDeviceAllocator::release_pool(DeviceIndex device, MempoolId_t id) {
  if (!orIsInBadFork()) { // the caller is a destructor
    checked(device).release_pool(id);
  }
}

int OpenRegDeviceAllocator::pool_use_count(DeviceIndex device, MempoolId_t id) {
  return checked(device).with_lock([&](DeviceState& state) { return state.pools.private_pools(id).use_count; });
}

void OpenRegDeviceAllocator::set_pool_policy(DeviceIndex device, MempoolId_t id, bool use_on_oom, bool no_split) {
  checked(device).with_lock([&](DeviceState& state) {
    PoolSet& set = state.pools.private_pools(id);
    set.use_on_oom = use_on_oom;
    set.no_split = no_split;
  });
}

void OpenRegDeviceAllocator::begin_allocate_to_pool(
    DeviceIndex device, MempoolId_t id, std::function<bool(Stream)> filter) {
  checked(device).with_lock([&](DeviceState& state) { state.pools.begin_allocate_to_pool(id, std::move(filter)); });
}

void OpenRegDeviceAllocator::end_allocate_to_pool(DeviceIndex device, MempoolId_t id) {
  checked(device).with_lock([&](DeviceState& state) { state.pools.end_allocate_to_pool(id); });
}

PrivatePoolState OpenRegDeviceAllocator::getCheckpointState(DeviceIndex device, MempoolId_t id) {
  return checked(device).getCheckpointState(id);
}

std::vector<void*> OpenRegDeviceAllocator::setCheckpointPoolState(DeviceIndex device, const PrivatePoolState& state) {
  return checked(device).setCheckpointPoolState(state);
}

bool OpenRegDeviceAllocator::checkPoolLiveAllocations(
    DeviceIndex device, MempoolId_t id, const std::set<void*>& addresses) {
  return checked(device).with_lock([&](const DeviceState& state) {
    std::set<void*> allocated;
    for (const Block* block : state.blocks_of(id)) {
      if (block->allocated) {
        allocated.insert(block->address);
      }
    }
    return allocated == addresses;
  });
}

// ---- history

void OpenRegDeviceAllocator::record_history(std::optional<HistoryOptions> options, bool clear) {
  check_not_forked();
  trace_clock();
  for (DeviceIndex device = 0; device < device_count(); ++device) {
    at(device).with_lock([&](DeviceState& state) {
      if (clear) {
        state.history.clear();
      }
      if (options) {
        state.history.start(*options);
      } else {
        state.history.stop();
      }
    });
  }
}

bool OpenRegDeviceAllocator::history_enabled() {
  return initialized_.load(std::memory_order_acquire) && device_count() > 0 && at(0).history_enabled();
}

MemorySnapshot OpenRegDeviceAllocator::snapshot(MempoolId_t pool, bool traces) {
  check_not_forked();
  MemorySnapshot result;
  if (initialized()) {
    const auto to_nanoseconds = trace_clock().makeConverter();
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      at(device).with_lock([&](DeviceState& state) {
        if (traces) { // first, because take_snapshot() adds an entry
          result.device_traces.push_back(state.history.entries(to_nanoseconds));
        }
        const auto segments = take_snapshot(state, pool);
        result.segments.insert(result.segments.end(), segments.begin(), segments.end());
      });
    }
  }
  std::sort(result.segments.begin(), result.segments.end(), [](const auto& a, const auto& b) {
    return a.address < b.address;
  });
  result.device_traces.resize(device_count());
  return result;
}

std::shared_ptr<GatheredContext> OpenRegDeviceAllocator::context_of(const void* address) {
  DeviceCachingAllocator* const owner = owner_of(address);
  return owner ? owner->with_lock([&](const DeviceState& state) {
    const Block* block = state.find_block(address); // null if the block was freed meanwhile
    return block && block->allocated ? block->context_when_allocated : nullptr;
  })
               : nullptr;
}

void OpenRegDeviceAllocator::attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  check_not_forked();
  for (DeviceIndex device = 0; device < device_count(); ++device) {
    at(device).with_lock([&](DeviceState& state) { state.out_of_memory_observers.push_back(observer); });
  }
}

} // namespace c10::openreg
