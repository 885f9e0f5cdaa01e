#include "simulator/borrowed/Twin.h"

#include <c10/core/impl/COWDeleter.h>

#include <cstring>

#include "runtime/OpenRegIdentity.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "simulator/borrowed/KernelAllocations.h"

namespace c10::openreg {
namespace {

intrusive_ptr<StorageImpl> make_twin(const StorageImpl* storage, DataPtr data) {
  return make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(storage->nbytes()),
      std::move(data),
      twin_allocator(),
      storage->resizable());
}

intrusive_ptr<StorageImpl> make_twin(const StorageImpl* storage) {
  // The DataPtr has no deleter: a twin does not own the bytes.
  return make_twin(storage, DataPtr(orGetKernelPointer(storage->data()), Device(DeviceType::CPU)));
}

// A copy-on-write storage gets memory of its own when its accessors are asked for memory to write. A kernel that writes
// through a plain twin does not ask, so the storage must get its own memory before the kernel runs.
void materialize(StorageImpl* storage) {
  if (C10_UNLIKELY(is_cow(storage))) {
    storage->mutable_data();
  }
}

intrusive_ptr<StorageImpl> make_with_twin(size_t size, DataPtr data, Allocator* allocator, bool resizable) {
  return make_intrusive<OpenRegStorageImpl>(
      StorageImpl::use_byte_size_t(), static_cast<int64_t>(size), std::move(data), allocator, resizable);
}

const bool registered = [] {
  set_storage_factory(&make_with_twin);
  return true;
}();

} // namespace

OpenRegStorageImpl::OpenRegStorageImpl(size_t size, DataPtr data, intrusive_ptr<StorageImpl> twin)
    : StorageImpl(use_byte_size_t(), static_cast<int64_t>(size), std::move(data), device_allocator(), true),
      twin_(twin.release()),
      twin_memory_(this->data()) {}

OpenRegStorageImpl::~OpenRegStorageImpl() {
  if (StorageImpl* twin = twin_.load(std::memory_order_relaxed)) {
    intrusive_ptr<StorageImpl>::reclaim(twin);
  }
}

StorageImpl* OpenRegStorageImpl::twin() {
  materialize(this);
  StorageImpl* twin = twin_.load(std::memory_order_acquire);
  // A storage that was resized or swapped gets another twin: queued kernels still use the twin of its old memory.
  if (C10_UNLIKELY(!twin || twin->data() != orGetKernelPointer(data()) || twin->nbytes() != nbytes())) {
    StorageImpl* made = make_twin(this).release();
    const bool first = twin_.compare_exchange_strong(twin, made, std::memory_order_acq_rel);
    if (StorageImpl* unused = first ? twin : made) { // `made`: another thread has set a twin meanwhile
      intrusive_ptr<StorageImpl>::reclaim(unused);
    }
    twin = first ? made : twin;
  }
  twin_memory_.store(data(), std::memory_order_relaxed);
  return twin;
}

intrusive_ptr<StorageImpl> new_twin(StorageImpl* storage) {
  materialize(storage);
  return make_twin(storage);
}

intrusive_ptr<StorageImpl> new_cow_twin(StorageImpl* storage) {
  using namespace c10::impl::cow;
  auto* sharers = storage->data_ptr().cast_context<COWDeleterContext>(cow_deleter);
  sharers->increment_refcount();
  auto twin =
      make_twin(storage, DataPtr(orGetKernelPointer(storage->data()), sharers, cow_deleter, Device(DeviceType::CPU)));
  twin->set_materializer(&materialize_cow);
  return twin;
}

void move_to_host(StorageImpl* twin) {
  const KernelAllocations on_host(-1);
  DataPtr copy = twin_allocator()->allocate(twin->nbytes());
  if (twin->nbytes() > 0) {
    std::memcpy(copy.get(), twin->data(), twin->nbytes());
  }
  twin->set_data_ptr_noswap(std::move(copy));
}

bool is_fresh(const StorageImpl* storage) {
  return storage->data_ptr().get_context() != nullptr && !is_cow(storage) && in_kernel_window(storage->data());
}

intrusive_ptr<StorageImpl> twin_of(StorageImpl* storage) {
  if (C10_LIKELY(keeps_twin(storage))) {
    return intrusive_ptr<StorageImpl>::reclaim_copy(static_cast<OpenRegStorageImpl*>(storage)->twin());
  }
  return new_twin(storage);
}

intrusive_ptr<StorageImpl> adopt_storage(intrusive_ptr<StorageImpl> storage, DeviceIndex device) {
  DataPtr& data = storage->mutable_data_ptr();
  void* const address = orGetDevicePointer(data.get());
  const size_t size = storage->nbytes();
  if (C10_UNLIKELY(size > 0 && address == data.get())) {
    // The result lies in host memory, for one of these reasons: the kernel is not PyTorch's, so it allocates host
    // memory; a thread that the kernel has started allocated the memory; other code allocated the memory before this
    // call and still uses it; or the schema says that the kernel writes its arguments only, and the device was full.
    auto copy = make_storage(size, device);
    std::memcpy(orGetKernelPointer(copy->data()), address, size);
    return copy;
  }
  DataPtr owned(address, address, data.get_deleter(), Device(identity.type, device));
  data.release_context(); // from now on the CPU storage is a twin, which does not own the bytes
  return make_intrusive<OpenRegStorageImpl>(size, std::move(owned), std::move(storage));
}

void take_over(StorageImpl* storage, StorageImpl* twin) {
  if (C10_LIKELY(twin->data() == orGetKernelPointer(storage->data()))) {
    return;
  }
  const auto adopted = adopt_storage(intrusive_ptr<StorageImpl>::reclaim_copy(twin), storage->device().index());
  replace_memory(storage, adopted->set_data_ptr(DataPtr()), adopted->nbytes());
}

} // namespace c10::openreg
