#include "simulator/borrowed/CpuView.h"

#include <c10/core/impl/COWDeleter.h>

#include <cstring>

#include "runtime/OpenRegIdentity.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "simulator/borrowed/KernelAllocations.h"

namespace c10::openreg {
namespace {

intrusive_ptr<StorageImpl> make_view(const StorageImpl* storage, DataPtr data) {
  return make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(storage->nbytes()),
      std::move(data),
      view_allocator(),
      storage->resizable());
}

intrusive_ptr<StorageImpl> make_view(const StorageImpl* storage) {
  // The DataPtr has no deleter: a CPU view does not own the bytes.
  return make_view(storage, DataPtr(orGetKernelPointer(storage->data()), Device(DeviceType::CPU)));
}

// A copy-on-write storage gets memory of its own when its accessors are asked for memory to write. A kernel that writes
// through a plain CPU view does not ask, so the storage must get its own memory before the kernel runs.
void materialize(StorageImpl* storage) {
  if (C10_UNLIKELY(is_cow(storage))) {
    storage->mutable_data();
  }
}

intrusive_ptr<StorageImpl> make_with_view(size_t size, DataPtr data, Allocator* allocator, bool resizable) {
  return make_intrusive<OpenRegStorageImpl>(
      StorageImpl::use_byte_size_t(), static_cast<int64_t>(size), std::move(data), allocator, resizable);
}

const bool cpu_view_is_registered = [] {
  set_storage_factory(&make_with_view);
  return true;
}();

} // namespace

OpenRegStorageImpl::OpenRegStorageImpl(size_t size, DataPtr data, intrusive_ptr<StorageImpl> view)
    : StorageImpl(use_byte_size_t(), static_cast<int64_t>(size), std::move(data), device_allocator(), true),
      cpu_view_(view.release()),
      cpu_view_memory_(this->data()) {}

OpenRegStorageImpl::~OpenRegStorageImpl() {
  if (StorageImpl* view = cpu_view_.load(std::memory_order_relaxed)) {
    intrusive_ptr<StorageImpl>::reclaim(view);
  }
}

StorageImpl* OpenRegStorageImpl::cpu_view() {
  materialize(this);
  StorageImpl* view = cpu_view_.load(std::memory_order_acquire);
  // A storage that was resized or swapped gets another CPU view: queued kernels still use the CPU view of its old memory.
  if (C10_UNLIKELY(!view || view->data() != orGetKernelPointer(data()) || view->nbytes() != nbytes())) {
    StorageImpl* made = make_view(this).release();
    const bool first = cpu_view_.compare_exchange_strong(view, made, std::memory_order_acq_rel);
    if (StorageImpl* unused = first ? view : made) { // `made`: another thread has set a CPU view meanwhile
      intrusive_ptr<StorageImpl>::reclaim(unused);
    }
    view = first ? made : view;
  }
  cpu_view_memory_.store(data(), std::memory_order_relaxed);
  return view;
}

intrusive_ptr<StorageImpl> new_cpu_view(StorageImpl* storage) {
  materialize(storage);
  return make_view(storage);
}

intrusive_ptr<StorageImpl> new_cow_view(StorageImpl* storage) {
  using namespace c10::impl::cow;
  auto* sharers = storage->data_ptr().cast_context<COWDeleterContext>(cow_deleter);
  sharers->increment_refcount();
  auto view =
      make_view(storage, DataPtr(orGetKernelPointer(storage->data()), sharers, cow_deleter, Device(DeviceType::CPU)));
  view->set_materializer(&materialize_cow);
  return view;
}

void move_to_host(StorageImpl* view) {
  const HostAllocations on_host;
  DataPtr copy = view_allocator()->allocate(view->nbytes());
  if (view->nbytes() > 0) {
    std::memcpy(copy.get(), view->data(), view->nbytes());
  }
  view->set_data_ptr_noswap(std::move(copy));
}

bool is_fresh(const StorageImpl* storage) {
  return storage->data_ptr().get_context() != nullptr && !is_cow(storage) && in_kernel_window(storage->data());
}

intrusive_ptr<StorageImpl> cpu_view_of(StorageImpl* storage) {
  if (C10_LIKELY(keeps_cpu_view(storage))) {
    return intrusive_ptr<StorageImpl>::reclaim_copy(static_cast<OpenRegStorageImpl*>(storage)->cpu_view());
  }
  return new_cpu_view(storage);
}

intrusive_ptr<StorageImpl> adopt_storage(intrusive_ptr<StorageImpl> storage, DeviceIndex device) {
  const size_t size = storage->nbytes();
  if (C10_UNLIKELY(size > 0 && !in_kernel_window(storage->data()))) {
    // The result lies in host memory, for one of these reasons: it was not known that this allocation becomes a result
    // (ResultPlaces.h); the kernel is not PyTorch's, so it allocates host memory; a thread that the kernel has started
    // allocated the memory; or other code allocated the memory before this call and still uses it.
    DataPtr copy = device_allocator()->allocate_for_kernel(size, device);
    std::memcpy(copy.get(), storage->data(), size);
    storage = make_intrusive<StorageImpl>(
        StorageImpl::use_byte_size_t(), static_cast<int64_t>(size), std::move(copy), view_allocator(), true);
  }
  DataPtr& data = storage->mutable_data_ptr();
  void* const address = orGetDevicePointer(data.get());
  DataPtr owned(address, address, data.get_deleter(), Device(identity.type, device));
  data.release_context(); // from now on the CPU storage is a CPU view, which does not own the bytes
  return make_intrusive<OpenRegStorageImpl>(size, std::move(owned), std::move(storage));
}

void take_over(StorageImpl* storage, StorageImpl* view) {
  if (C10_LIKELY(view->data() == orGetKernelPointer(storage->data()))) {
    return;
  }
  const auto adopted = adopt_storage(intrusive_ptr<StorageImpl>::reclaim_copy(view), storage->device().index());
  replace_memory(storage, adopted->set_data_ptr(DataPtr()), adopted->nbytes());
}

} // namespace c10::openreg
