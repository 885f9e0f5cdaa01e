#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include "runtime/OpenRegException.h"

// The storage of a device tensor: PyTorch's own class, c10::StorageImpl, over memory of the device's allocator.
//
// Rule: a storage with memory is made by make_storage() or storage_over() only. A backend that must keep something
// beside the memory passes set_storage_factory() a function that makes storages of a subclass of StorageImpl.
namespace c10::openreg {

// Makes a storage of `size` bytes over `data`. `allocator` gives a resizable storage its new memory.
using StorageFactory = intrusive_ptr<StorageImpl> (*)(size_t size, DataPtr data, Allocator* allocator, bool resizable);

// Replaces the factory of plain StorageImpls. Must be called while the library loads.
void set_storage_factory(StorageFactory factory);

// A resizable storage of `size` bytes on `device`. The contents are undefined.
OPENREG_API intrusive_ptr<StorageImpl> make_storage(size_t size, DeviceIndex device);

// Makes the storages that Python asks for: torch.UntypedStorage(n, device="openreg"), torch.load. Registered with
// PyTorch.
intrusive_ptr<StorageImpl> create_storage(
    StorageImpl::use_byte_size_t, SymInt size, DataPtr data, Allocator* allocator, bool resizable);

// A storage over `size` bytes that exist already. It cannot be resized.
OPENREG_API intrusive_ptr<StorageImpl> storage_over(size_t size, DataPtr data);

// Gives `storage` room for `size` bytes and keeps its first bytes, as many as fit. Does not wait: the copy is queued on
// the current stream.
OPENREG_API void resize_storage(StorageImpl* storage, size_t size);

// Replaces the memory of `storage` by `data`, which no other storage uses.
void replace_memory(StorageImpl* storage, DataPtr data, size_t size);

// Throws the error of an illegal memory access if `tensor` has elements but its storage has no memory. FSDP frees the
// memory of parameters that it does not need, with `storage.resize_(0)`. A tensor without elements, a ZeroTensor, and
// the tensor inside a FakeTensor need no memory, and are accepted. The error names `kernel`.
OPENREG_API void check_missing_memory(const TensorImpl& tensor, const char* kernel);
inline void check_memory(const TensorImpl& tensor, const char* kernel) {
  const StorageImpl* storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(!storage || !storage->data())) {
    check_missing_memory(tensor, kernel);
  }
}

} // namespace c10::openreg
