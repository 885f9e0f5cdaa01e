#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <atomic>

#include "OpenRegException.h"

// The storage of a device tensor.
//
// Rule: tensors carry addresses of the device window, which the host cannot touch; kernels need the kernel window. A
// storage therefore keeps a *twin*: a CPU storage over the same bytes through the kernel window, made at first use and
// kept. The twin owns nothing: only queued kernels use it after its owner is gone, because memory that is freed is reused in
// the order of the stream. A StorageImpl of this class is only made here: PyTorch's own factories
// (at::detail::empty_generic) make plain ones, which get a twin per use.
namespace c10::openreg {

// LITERALINCLUDE START: STORAGE IMPL
struct OPENREG_API OpenRegStorageImpl final : public c10::StorageImpl {
  using StorageImpl::StorageImpl;

  // With a twin made from the CPU storage that owned `data` until now.
  OpenRegStorageImpl(size_t size, DataPtr data, intrusive_ptr<StorageImpl> twin);
  ~OpenRegStorageImpl() override;

  StorageImpl* twin();

 private:
  std::atomic<StorageImpl*> twin_{nullptr}; // owning; atomic because two threads may use a tensor for the first time
};
// LITERALINCLUDE END: STORAGE IMPL

// `size` bytes on `device`, contents undefined.
OPENREG_API intrusive_ptr<StorageImpl> make_storage(size_t size, DeviceIndex device);

// A CPU storage over the bytes of a device storage.
OPENREG_API intrusive_ptr<StorageImpl> twin_of(StorageImpl* storage);

// Whether `storage` is one of this file's, with a twin of its own.
OPENREG_API bool keeps_twin(const StorageImpl* storage);

// A twin for one use, of any storage.
OPENREG_API intrusive_ptr<StorageImpl> new_twin(StorageImpl* storage);

// Gives such a twin memory of its own, with the same contents, so that it may outlive the device storage.
OPENREG_API void move_to_host(StorageImpl* twin);

// Whether a CPU storage owns its memory: a kernel made it, it is no twin.
OPENREG_API bool is_fresh(const StorageImpl* storage);

// Gives `storage` room for `size` bytes and keeps the smaller of the old and the new contents.
OPENREG_API void resize_storage(StorageImpl* storage, size_t size);

// Relabels memory between the two windows without copying. The result has a twin; `storage` becomes it.
OPENREG_API intrusive_ptr<StorageImpl> adopt_storage(intrusive_ptr<StorageImpl> storage, DeviceIndex device);

// If a kernel gave the twin other memory (a resized out=), the device storage takes it over.
OPENREG_API void take_over(StorageImpl* storage, StorageImpl* twin);

// ---- Where the CPU's kernels allocate

// While one lives, the calling thread's CPU allocations come from `device`: the outputs and temporaries of a kernel that
// runs on the device are the device's memory, counted and limited as such. Index -1 allocates on the CPU as usual.
class OPENREG_API KernelAllocations {
 public:
  explicit KernelAllocations(DeviceIndex device);
  ~KernelAllocations();
  KernelAllocations(const KernelAllocations&) = delete;
  KernelAllocations& operator=(const KernelAllocations&) = delete;

  // Whether the calling thread runs a kernel on a device.
  static bool active();

 private:
  DeviceIndex previous_;
};

// While one lives, an allocation of the size of one of these tensors, CPU aliases, gets its memory, once; all others are the
// host's. For kernels that run later: their results have got device memory already, and there a thread that is not the
// launching one must not take any, for what the allocator thinks free may be in use by work that was queued before.
class OPENREG_API ReservedAllocations {
 public:
  explicit ReservedAllocations(ArrayRef<StorageImpl*> reserved);
  ~ReservedAllocations();
  ReservedAllocations(const ReservedAllocations&) = delete;
  ReservedAllocations& operator=(const ReservedAllocations&) = delete;

  void* take(size_t size); // null: none of that size is left

 private:
  c10::SmallVector<StorageImpl*, 4> reserved_;
};

} // namespace c10::openreg
