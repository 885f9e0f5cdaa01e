#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "../OpenRegMutex.h"
#include "OpenRegMemoryHistory.h"
#include "OpenRegMemorySnapshot.h"
#include "OpenRegOutOfMemory.h"

// LITERALINCLUDE START: DEVICE ALLOCATOR RULES
// The caching allocator of device memory, as c10::cuda::CUDACachingAllocator. This class is what PyTorch knows; it passes
// each call to the DeviceCachingAllocator of the device that the call is about.
//
// Rules:
//   - A block belongs to the stream from which it was allocated. When it is freed, the same stream may get it again at once:
//     a stream runs in order, so work that still reads the block runs before the work of its new owner. If another stream
//     uses the block, recordStream() must say so, or that stream may read the new owner's bytes.
//   - Sizes are CUDA's, so that memory_allocated() and memory_reserved() return what CUDA's would: blocks are multiples of
//     512 bytes; segments from orMalloc() are 2 MiB for blocks up to 1 MiB, 20 MiB for larger ones, and as large as the
//     request from 10 MiB on.
//   - The allocator's own tables never lie in device memory. After fork() the child does not have that memory, and must still
//     be able to drop its tensors.
//   - Each device has a lock of its own. Nothing waits for the device, for Python's GIL or for a stream's queue while it holds
//     the lock, because what it waits for may be freeing memory. No thread holds the locks of two devices.
// LITERALINCLUDE END: DEVICE ALLOCATOR RULES
namespace c10::openreg {

class DeviceCachingAllocator;

// LITERALINCLUDE START: DEVICE ALLOCATOR CLASS
class OPENREG_API OpenRegDeviceAllocator final : public c10::DeviceAllocator {
 public:
  OpenRegDeviceAllocator();
  ~OpenRegDeviceAllocator() override;

  // Allocates on the current device, for its current stream. Throws torch.OutOfMemoryError.
  DataPtr allocate(size_t size) override;
  DataPtr allocate_on(size_t size, DeviceIndex device);

  // Allocates for a kernel that runs on this thread, on `device`: its outputs and temporaries. The result is the address
  // of the memory in the kernel window, with the label CPU. Whoever frees it, the memory returns to the device. Without
  // room throws if the memory is `required`, else returns null.
  DataPtr allocate_for_kernel(size_t size, DeviceIndex device, bool required = true);

  // Allocates a temporary of a queued kernel, on the current device. Null if there is no room, and for small sizes, which
  // the host gives as fast. The memory belongs to no stream: earlier kernels may still use what the host has freed. It counts
  // as reserved, not as allocated, so that statistics do not depend on how far the device has come.
  DataPtr allocate_temporary(size_t size);

  DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t size) const override;
  bool initialized() override;
  void emptyCache(MempoolId_t pool) override;
  // Ignores memory of other owners, such as an imported DLPack tensor: the owner keeps that alive.
  void recordStream(const DataPtr& data, c10::Stream stream) override;
  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;

  // How much of the device's memory this process may reserve: a number from 0 to 1.
  double memory_fraction(DeviceIndex device);
  void set_memory_fraction(double fraction, DeviceIndex device);

  // ---- Memory pools: blocks that are kept apart. A pool exists while somebody uses it. When the last user has gone, its
  // free memory returns to the device at once, without waiting for other streams; the rest returns with emptyCache().
  void use_pool(DeviceIndex device, MempoolId_t pool); // makes the pool at its first use
  void release_pool(DeviceIndex device, MempoolId_t pool);
  int pool_use_count(DeviceIndex device, MempoolId_t pool);
  void set_pool_policy(DeviceIndex device, MempoolId_t pool, bool use_on_oom, bool no_split);
  // Until end_allocate_to_pool() requests are served from the pool if filter(current stream) is true. Uses the pool too.
  void begin_allocate_to_pool(DeviceIndex device, MempoolId_t pool, std::function<bool(Stream)> filter);
  void end_allocate_to_pool(DeviceIndex device, MempoolId_t pool);

  // ---- What the allocator holds and what it did
  void record_history(std::optional<HistoryOptions> options, bool clear); // nullopt: stops the recording
  bool history_enabled();
  // `pool` {0, 0}: everything. Each device is locked in turn, so that the result is of one moment for each device.
  MemorySnapshot snapshot(MempoolId_t pool = {0, 0}, bool traces = true);
  // Where the block at `address` was allocated; null if that is unknown.
  std::shared_ptr<GatheredContext> context_of(const void* address);
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);

 private:
  std::vector<std::unique_ptr<DeviceCachingAllocator>> devices_; // empty before the first use
  std::atomic<bool> initialized_{false};
  ForkSafeMutex init_mutex_;

  void init();
  DeviceCachingAllocator& at(DeviceIndex device);
  DeviceCachingAllocator& checked(DeviceIndex device);
  DeviceCachingAllocator* owner_of(const void* pointer);
  char* malloc(size_t size, DeviceIndex device, bool required = true, bool for_kernel = false);
  static void free_raw(void* address);
};
// LITERALINCLUDE END: DEVICE ALLOCATOR CLASS

OPENREG_API OpenRegDeviceAllocator* device_allocator();

} // namespace c10::openreg
