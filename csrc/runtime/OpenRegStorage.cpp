#include "runtime/OpenRegStorage.h"

#include <algorithm>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

intrusive_ptr<StorageImpl> make_plain(size_t size, DataPtr data, Allocator* allocator, bool resizable) {
  return make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), static_cast<int64_t>(size), std::move(data), allocator, resizable);
}

constinit StorageFactory factory = &make_plain;

} // namespace

void set_storage_factory(StorageFactory chosen) {
  factory = chosen;
}

intrusive_ptr<StorageImpl> make_storage(size_t size, DeviceIndex device) {
  OpenRegDeviceAllocator* allocator = device_allocator();
  return factory(size, allocator->allocate_on(size, device), allocator, /*resizable=*/true);
}

intrusive_ptr<StorageImpl> create_storage(
    StorageImpl::use_byte_size_t, SymInt size, DataPtr data, Allocator* allocator, bool resizable) {
  const auto bytes = size.as_int_unchecked();
  if (!data) { // also for 0 bytes: the pointer carries the device
    data = allocator->allocate(bytes);
  }
  return factory(bytes, std::move(data), allocator, resizable);
}

intrusive_ptr<StorageImpl> storage_over(size_t size, DataPtr data) {
  return factory(size, std::move(data), /*allocator=*/nullptr, /*resizable=*/false);
}

void replace_memory(StorageImpl* storage, DataPtr data, size_t size) {
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(size);
  if (C10_UNLIKELY(storage->has_materializer())) {
    storage->clear_materializer();
  }
}

void resize_storage(StorageImpl* storage, size_t size) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const DeviceIndex device = storage->device().index();
  DataPtr data = device_allocator()->allocate_on(size, device);
  const size_t kept = std::min(size, storage->nbytes());
  if (kept > 0) {
    const Stream stream = getCurrentOpenRegStream(device);
    OPENREG_CHECK(
        orMemcpyAsync(data.get(), storage->data(), kept, orMemcpyDeviceToDevice, OpenRegStream(stream).stream()));
  }
  replace_memory(storage, std::move(data), size);
}

void check_missing_memory(const TensorImpl& tensor, const char* kernel) {
  if (!tensor.unsafe_storage()) {
    if (tensor.layout() == kStrided && tensor.numel() > 0) {
      tensor.storage(); // throws the text of _set_storage_access_error_msg()
    }
    return; // tensors of other layouts have none
  }
  const bool never_had_any = // the storage inside a FakeTensor, or zeros that need no memory
      tensor.storage().device().type() != identity.type || tensor.key_set().has(DispatchKey::ZeroTensor);
  if (tensor.numel() > 0 && !never_had_any) {
    const std::string call =
        c10::str(kernel, ": the storage of an operand with ", tensor.numel(), " elements was resized to 0 bytes");
    throw_error(orErrorIllegalAddress, call.c_str());
  }
}

} // namespace c10::openreg
