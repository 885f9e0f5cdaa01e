#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <functional>

#include "../OpenRegException.h"
#include "OpenRegMemoryHistory.h"

// LITERALINCLUDE START: DEVICE ALLOCATOR RULES
// The caching allocator of device memory: what c10::cuda::CUDACachingAllocator is to CUDA.
//
// Rules:
//   - A block belongs to the stream it was allocated on. Freed, it is handed out again on that stream at once, because the
//     stream runs in order: whatever still reads the block runs before what the new owner queues. Used on another stream,
//     it must be announced with recordStream(), or the other stream may read the new owner's bytes.
//   - Sizes are rounded to 512 bytes, segments of 2 MiB (blocks up to 1 MiB), 20 MiB, or the request's own size (from
//     10 MiB) come from orMalloc, as on CUDA, so that memory_allocated() and memory_reserved() say what CUDA's would.
//   - Its own tables never lie in device memory: after fork() the pages are gone in the child, and it must still be able to
//     drop its tensors.
//   - Whatever may wait for the device, for Python's GIL or for a stream's queue happens without the allocator's lock:
//     what it waits for may be freeing memory.
// LITERALINCLUDE END: DEVICE ALLOCATOR RULES
namespace c10::openreg {

struct MemorySnapshot {
  std::vector<CachingDeviceAllocator::SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> device_traces;
};

// LITERALINCLUDE START: DEVICE ALLOCATOR CLASS
class OPENREG_API OpenRegDeviceAllocator : public c10::DeviceAllocator {
 public:
  // On the current device and its current stream. Throws torch.OutOfMemoryError.
  DataPtr allocate(size_t size) override = 0;

  virtual DataPtr allocate_on(size_t size, DeviceIndex device) = 0;

  // The same bytes as a kernel sees them: an address in the kernel window, labelled CPU. For the outputs and
  // temporaries of a kernel that runs on `device`; the memory returns to the device whoever frees it. Without room:
  // throws, or, if it is not `required`, gives null.
  virtual DataPtr allocate_for_kernel(size_t size, DeviceIndex device, bool required = true) = 0;

  // The same for what a queued kernel makes for itself, on the current device: null for what is small, which the host
  // gives as fast, and without room. Belongs to no stream: what the host has freed, earlier kernels may still use.
  // Counts as reserved only, so that the host does not see how far the device has come.
  virtual DataPtr allocate_temporary(size_t size) = 0;

  // How much of the device's memory this process may reserve, 0 to 1.
  virtual double memory_fraction(DeviceIndex device) = 0;
  virtual void set_memory_fraction(double fraction, DeviceIndex device) = 0;

  // ---- Memory pools: blocks that are kept apart. What the current stream's filter sends there is allocated from the
  // pool.
  // A pool lives while somebody uses it. What is free of it then goes back, without waiting for the device, and the
  // rest with emptyCache().
  virtual void use_pool(DeviceIndex device, MempoolId_t pool) = 0; // makes it at the first use
  virtual void release_pool(DeviceIndex device, MempoolId_t pool) = 0;
  virtual int pool_use_count(DeviceIndex device, MempoolId_t pool) = 0;
  virtual void set_pool_policy(DeviceIndex device, MempoolId_t pool, bool use_on_oom, bool no_split) = 0;
  // Uses the pool too.
  virtual void begin_allocate_to_pool(DeviceIndex device, MempoolId_t pool, std::function<bool(Stream)> filter) = 0;
  virtual void end_allocate_to_pool(DeviceIndex device, MempoolId_t pool) = 0;

  // ---- What it holds and did
  virtual void record_history(std::optional<HistoryOptions> options, bool clear) = 0; // none: stop
  virtual bool history_enabled() = 0;
  virtual MemorySnapshot snapshot(MempoolId_t pool = {0, 0}, bool traces = true) = 0; // {0, 0}: everything
  // Where the block at `address` was allocated; null if that is unknown.
  virtual std::shared_ptr<GatheredContext> context_of(const void* address) = 0;
  // Called before an allocation fails, with the device, the bytes asked for, and the device's total and free bytes.
  using OutOfMemoryObserver = std::function<void(int64_t device, size_t size, size_t total, size_t free)>;
  virtual void attach_out_of_memory_observer(OutOfMemoryObserver observer) = 0;
};
// LITERALINCLUDE END: DEVICE ALLOCATOR CLASS

OPENREG_API OpenRegDeviceAllocator* device_allocator();

} // namespace c10::openreg
