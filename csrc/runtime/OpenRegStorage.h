#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>
#include <c10/util/SmallVector.h>

#include <atomic>

#include "OpenRegException.h"

// The storage of a device tensor.
//
// Rule: tensors carry addresses of the device window, which the host cannot touch; kernels need the kernel window. A
// storage therefore keeps a *twin*: a CPU storage over the same bytes through the kernel window, made at first use and
// kept. The twin owns nothing: only queued kernels use it after its owner is gone, because memory that is freed is
// reused in the order of the stream. A StorageImpl of this class is only made here: PyTorch's own factories
// (at::detail::empty_generic) make plain ones, which get a twin per use.
namespace c10::openreg {

// Whether `storage` shares its memory until it is written.
inline bool is_cow(const StorageImpl* storage) {
  return impl::cow::is_cow_data_ptr(storage->data_ptr());
}

// LITERALINCLUDE START: STORAGE IMPL
struct OPENREG_API OpenRegStorageImpl final : public c10::StorageImpl {
  using StorageImpl::StorageImpl;

  // With a twin made from the CPU storage that owned `data` until now.
  OpenRegStorageImpl(size_t size, DataPtr data, intrusive_ptr<StorageImpl> twin);
  ~OpenRegStorageImpl() override;

  StorageImpl* twin();

  // The twin, if it can be used at once; else null. Asked for every operand.
  StorageImpl* ready_twin() const {
    StorageImpl* twin = twin_.load(std::memory_order_acquire);
    const void* memory = data();
    return twin && memory && memory == twin_memory_.load(std::memory_order_relaxed) && twin->nbytes() == nbytes() &&
                   !is_cow(this)
               ? twin
               : nullptr;
  }

 private:
  std::atomic<StorageImpl*> twin_{nullptr}; // owning; atomic because two threads may use a tensor for the first time
  std::atomic<const void*> twin_memory_{nullptr}; // what data() was when the twin was made
};
// LITERALINCLUDE END: STORAGE IMPL

// `size` bytes on `device`, contents undefined.
OPENREG_API intrusive_ptr<StorageImpl> make_storage(size_t size, DeviceIndex device);

// A CPU storage over the bytes of a device storage.
OPENREG_API intrusive_ptr<StorageImpl> twin_of(StorageImpl* storage);

// Whether `storage` is one of this file's, with a twin of its own.
inline bool keeps_twin(const StorageImpl* storage) {
  return typeid(*storage) == typeid(OpenRegStorageImpl);
}

// A twin for one use, of any storage.
OPENREG_API intrusive_ptr<StorageImpl> new_twin(StorageImpl* storage);

// A copy-on-write twin, for one use, of a storage that shares its memory with others (torch._lazy_clone). A kernel that
// only reads leaves the memory shared. A kernel that writes gets a copy first, and take_over() then gives that copy to the
// storage.
OPENREG_API intrusive_ptr<StorageImpl> new_cow_twin(StorageImpl* storage);

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
//
// A kernel that `only_writes` to its arguments, in place or out=, makes nothing but temporaries, of which CUDA's kernel
// has most in registers: where the device has no room for one, it is the host's memory.
class OPENREG_API KernelAllocations {
 public:
  explicit KernelAllocations(DeviceIndex device, bool only_writes = false);
  ~KernelAllocations();
  KernelAllocations(const KernelAllocations&) = delete;
  KernelAllocations& operator=(const KernelAllocations&) = delete;

  // Whether the calling thread runs a kernel on a device.
  static bool active();

 private:
  DeviceIndex previous_;
  bool previously_only_writes_;
};

// Memory for a result of a kernel that runs later.
struct ReservedMemory {
  StorageImpl* storage; // a CPU twin
  size_t turn;          // the result's allocation is not the first one of its size, but comes after so many
};

// While one lives, the allocation whose turn it is gets the reserved memory; all others are temporaries. For kernels that
// run later: their results have got device memory already, and what the allocator thinks free on the stream may be in use
// by work that was queued before.
class OPENREG_API ReservedAllocations {
 public:
  explicit ReservedAllocations(ArrayRef<ReservedMemory> reserved);
  ~ReservedAllocations();
  ReservedAllocations(const ReservedAllocations&) = delete;
  ReservedAllocations& operator=(const ReservedAllocations&) = delete;

  DataPtr allocate(size_t size);
  bool has(const void* address) const;

  // The turn that the last allocation at `address` had, if its size is that of a result.
  std::optional<size_t> turn_of(const void* address) const;

 private:
  c10::SmallVector<ReservedMemory, 4> reserved_;
  c10::SmallVector<std::pair<const void*, size_t>, 4> allocated_; // of the sizes that are reserved
};

} // namespace c10::openreg
