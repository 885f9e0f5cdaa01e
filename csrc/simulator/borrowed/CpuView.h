#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include <atomic>

#include "runtime/OpenRegStorage.h"

// The storage class of device tensors, as long as the backend borrows PyTorch's CPU kernels.
//
// Rule: device memory has two address ranges. Tensors carry addresses of the device window, which the host cannot
// touch. Kernels need addresses of the kernel window, through which the same bytes can be read and written. A storage
// therefore keeps a *CPU view*: a CPU storage over the same bytes through the kernel window. The CPU view is made at first use
// and kept. It does not own the bytes. A queued kernel may use the CPU view after the storage is gone, because freed memory
// is reused in stream order. Storages that PyTorch's own factories make (at::detail::empty_generic) are plain
// StorageImpls, and get a new CPU view for each use.
namespace c10::openreg {

// Whether `storage` shares its memory until it is written.
inline bool is_cow(const StorageImpl* storage) {
  return impl::cow::is_cow_data_ptr(storage->data_ptr());
}

// LITERALINCLUDE START: STORAGE IMPL
struct OPENREG_API OpenRegStorageImpl final : public c10::StorageImpl {
  using StorageImpl::StorageImpl;

  // `view` is the CPU storage that owned `data` until now.
  OpenRegStorageImpl(size_t size, DataPtr data, intrusive_ptr<StorageImpl> view);
  ~OpenRegStorageImpl() override;

  StorageImpl* cpu_view();

  // The CPU view if it can be used at once, otherwise null. Called for every operand.
  StorageImpl* ready_cpu_view() const {
    StorageImpl* view = cpu_view_.load(std::memory_order_acquire);
    const void* memory = data();
    return view && memory && memory == cpu_view_memory_.load(std::memory_order_relaxed) && view->nbytes() == nbytes() &&
                   !is_cow(this)
               ? view
               : nullptr;
  }

 private:
  std::atomic<StorageImpl*> cpu_view_{
      nullptr}; // owning; atomic because two threads may make the CPU view at the same time
  std::atomic<const void*> cpu_view_memory_{nullptr}; // what data() was when the CPU view was made
};
// LITERALINCLUDE END: STORAGE IMPL

// A CPU storage over the bytes of a device storage: the CPU view that the storage keeps, or a new CPU view if it keeps none. A
// copy-on-write storage first gets memory of its own.
OPENREG_API intrusive_ptr<StorageImpl> cpu_view_of(StorageImpl* storage);

// Whether `storage` is an OpenRegStorageImpl, and so keeps a CPU view.
inline bool keeps_cpu_view(const StorageImpl* storage) {
  return storage && typeid(*storage) == typeid(OpenRegStorageImpl); // null: graph trees took it from the tensor
}

// A CPU view for one use, for a storage of any class. A copy-on-write storage first gets memory of its own.
OPENREG_API intrusive_ptr<StorageImpl> new_cpu_view(StorageImpl* storage);

// A copy-on-write CPU view, for one use, of a storage that shares its memory with others (torch._lazy_clone). A kernel that
// only reads leaves the memory shared. A kernel that writes gets a copy first, and take_over() then gives that copy to
// the storage.
OPENREG_API intrusive_ptr<StorageImpl> new_cow_view(StorageImpl* storage);

// Copies the bytes to host memory, which `view` then owns. So `view`, made by new_cpu_view(), may outlive the device
// storage.
OPENREG_API void move_to_host(StorageImpl* view);

// Whether a CPU storage owns device memory. That is so if a kernel allocated the memory for a result. A CPU view owns no
// device memory unless a kernel gave it other memory (take_over()).
OPENREG_API bool is_fresh(const StorageImpl* storage);

// Makes a device storage of `storage`, the CPU storage of a kernel's result. If the result lies in device memory,
// nothing is copied, and `storage` becomes the CPU view of the device storage. If the result lies in host memory, its bytes
// are copied to the device.
OPENREG_API intrusive_ptr<StorageImpl> adopt_storage(intrusive_ptr<StorageImpl> storage, DeviceIndex device);

// If a kernel gave `view` other memory (a resized out=), `storage` takes over that memory. Otherwise does nothing.
OPENREG_API void take_over(StorageImpl* storage, StorageImpl* view);

} // namespace c10::openreg
