#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Registry.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegMemoryHistory.h"

// LITERALINCLUDE START: DEVICE ALLOCATOR RULES
// The caching allocator of device memory, as c10::cuda::CUDACachingAllocator. PyTorch calls this class, which passes
// each call to the DeviceCachingAllocator of the device that the call is about.
//
// Rules:
//   - A block belongs to the stream from which it was allocated. When it is freed, the same stream may get it again at
//     once: a stream runs in order, so work that still reads the block runs before the work of its new owner. If
//     another stream uses the block, recordStream() must say so, or that stream may read the new owner's bytes.
//   - By default, sizes are CUDA's, so that memory_allocated() and memory_reserved() return what CUDA's would: blocks
//     are multiples of 512 bytes. A segment from orMalloc() is 2 MiB for blocks up to 1 MiB, 20 MiB (the setting
//     large_segment_size) for blocks below 10 MiB, and otherwise the size of the block, rounded up to a multiple of
//     2 MiB.
//   - The allocator's own tables lie in host memory. A forked child has no device memory, but it must still be able to
//     drop the tensors that it inherited.
//   - Each device has a lock of its own. A thread that holds the lock never waits for the device, for Python's GIL or
//     for a stream's queue: the thread or the kernel that it would wait for may need the lock in order to free memory.
//     No thread holds the locks of two devices.
// LITERALINCLUDE END: DEVICE ALLOCATOR RULES
namespace c10::openreg {

class DeviceCachingAllocator; // OpenRegCachingAllocator.h

// What a MemPool held at one moment: its blocks, in the order of their addresses.
struct PrivatePoolState {
  struct BlockState {
    char* address;
    size_t size;
    size_t requested_size; // of an allocated block
    size_t padding;
    bool allocated;
    bool starts_segment;
  };
  MempoolId_t id;
  std::vector<BlockState> blocks;
};

// LITERALINCLUDE START: DEVICE ALLOCATOR CLASS
class OPENREG_API OpenRegDeviceAllocator final : public c10::DeviceAllocator {
 public:
  // Both functions allocate on one device, the current device or `device`, for the current stream of that device. They
  // throw torch.OutOfMemoryError if the device has no memory left. For 0 bytes the pointer is null.
  DataPtr allocate(size_t size) override;
  DataPtr allocate_on(size_t size, DeviceIndex device);

  // Allocates a result of a kernel that runs on this thread, on `device`. The DataPtr says CPU, and holds an address of
  // the kernel window, through which kernels read and write device memory. Its deleter returns the memory to this
  // allocator. Throws torch.OutOfMemoryError if the device has no memory left.
  DataPtr allocate_for_kernel(size_t size, DeviceIndex device);

  DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t size) const override;
  bool initialized() override;
  void emptyCache(MempoolId_t pool) override;
  // Ignores memory of other owners, such as that of an imported DLPack tensor: its owner keeps that memory alive.
  void recordStream(const DataPtr& data, c10::Stream stream) override;
  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;

  // How much of the device's memory this process may reserve: a number from 0 to 1.
  double memory_fraction(DeviceIndex device);
  void set_memory_fraction(double fraction, DeviceIndex device);

  // ---- Memory pools (torch.openreg.MemPool): memory that is kept apart from other requests

  // A pool has a use count. When the count becomes 0, the free segments of the pool return to the device at once. A
  // segment with a block that is still used, or that waits for another stream, returns with the first emptyCache()
  // after the block was freed.
  void use_pool(DeviceIndex device, MempoolId_t pool); // makes the pool at its first use
  void release_pool(DeviceIndex device, MempoolId_t pool);
  int pool_use_count(DeviceIndex device, MempoolId_t pool);
  void set_pool_policy(DeviceIndex device, MempoolId_t pool, bool use_on_oom, bool no_split);
  // Until end_allocate_to_pool(), a request is served from the pool if filter(current stream) is true. Also adds 1 to
  // the pool's use count, which release_pool() takes away again.
  void begin_allocate_to_pool(DeviceIndex device, MempoolId_t pool, std::function<bool(Stream)> filter);
  void end_allocate_to_pool(DeviceIndex device, MempoolId_t pool);
  // For graph trees: the state of a pool, and the return to it (DeviceCachingAllocator). own() gives a block that the
  // second function returned an owner.
  PrivatePoolState getCheckpointState(DeviceIndex device, MempoolId_t pool);
  std::vector<void*> setCheckpointPoolState(DeviceIndex device, const PrivatePoolState& state);
  // Whether exactly the blocks at `addresses` are allocated in the pool.
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool, const std::set<void*>& addresses);
  static DataPtr own(void* address, DeviceIndex device);

  // ---- What the allocator holds and what it did
  void record_history(std::optional<HistoryOptions> options, bool clear); // nullopt: stops the recording
  bool history_enabled();
  // `pool` {0, 0}: everything. `traces`: with the recorded history. The devices are locked one after the other, so the
  // parts of two devices may show different moments.
  MemorySnapshot snapshot(MempoolId_t pool = {0, 0}, bool traces = true);
  // The stack trace that was recorded when the block at `address` was allocated; null if there is none.
  std::shared_ptr<GatheredContext> context_of(const void* address);
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);

 private:
  std::atomic<bool> initialized_{false};
  ForkSafeMutex init_mutex_;

  void init();
  DeviceCachingAllocator& at(DeviceIndex device);      // starts the allocator if necessary, and checks nothing
  DeviceCachingAllocator& checked(DeviceIndex device); // also throws for an index without a device
  DeviceCachingAllocator* owner_of(const void* pointer);
  char* malloc(size_t size, DeviceIndex device);
  static void free_raw(void* address);
};
// LITERALINCLUDE END: DEVICE ALLOCATOR CLASS

OPENREG_API OpenRegDeviceAllocator* device_allocator();

// Callbacks that the device allocator calls in two cases: when it has no free block and the device has no room for
// another segment, and in emptyCache(). A callback gives back blocks that its code holds without need. CUDA's allocator
// has the same registry (c10::FreeMemoryCallback), for the same reason: the allocator calls code of a higher layer,
// such as the sharing of memory between processes, without including it.
//
// Rule: a callback runs on the thread that allocates or calls emptyCache(), without the allocator's lock, and may free
// device memory.
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual void Execute() = 0;
};

C10_DECLARE_REGISTRY(FreeMemoryCallbacksRegistry, FreeMemoryCallback);
#define REGISTER_FREE_MEMORY_CALLBACK(name, ...) C10_REGISTER_CLASS(FreeMemoryCallbacksRegistry, name, __VA_ARGS__)

// Runs all callbacks that are registered.
void trigger_free_memory_callbacks();

} // namespace c10::openreg
