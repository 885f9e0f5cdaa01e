#include "simulator/dry/Contents.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/flat_hash_map.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "aten/native/Layouts.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegMutex.h"

namespace at::openreg {
namespace {

// The bytes from the first to the last element of a tensor.
struct ElementBytes {
  const char* begin;
  size_t size;
};

ElementBytes bytes_of(const Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {nullptr, 0};
  }
  size_t last = 0; // strides are not negative
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += static_cast<size_t>(tensor.stride(i) * (tensor.size(i) - 1));
  }
  const size_t item = tensor.element_size();
  const auto* storage = static_cast<const char*>(tensor.storage().data());
  return {storage + static_cast<size_t>(tensor.storage_offset()) * item, (last + 1) * item};
}

// ---- The host's storages whose initialisation was skipped. A weak reference keeps the address of a storage from being
// used again, and says whether the storage still exists.
using HostStorages = ska::flat_hash_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>>;

c10::openreg::ForkSafeMutex host_mutex;

HostStorages& host_storages() {
  static auto* const storages = new HostStorages;
  return *storages;
}

c10::StorageImpl* storage_of(const Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

// Whether the memory is the CPU allocator's: private, anonymous memory, so that a page that is given back is zeros.
bool is_plain_memory(const c10::StorageImpl& storage) {
  static const c10::DeleterFnPtr plain = at::detail::empty_cpu({1}, kByte).storage().data_ptr().get_deleter();
  return storage.data_ptr().get_deleter() == plain;
}

} // namespace

bool has_contents(const Tensor& tensor) {
  return is_device_tensor(tensor) && tensor.layout() == kStrided && !has_components(*tensor.unsafeGetTensorImpl()) &&
         tensor.has_storage() && !tensor._is_zerotensor();
}

orContents contents_of(const Tensor& tensor) {
  const ElementBytes bytes = bytes_of(tensor);
  return orDryContents(bytes.begin, bytes.size);
}

void set_contents(const Tensor& tensor, orContents contents) {
  const ElementBytes bytes = bytes_of(tensor);
  const bool is_dense = tensor.is_non_overlapping_and_dense();
  orDryMark(bytes.begin, bytes.size, is_dense ? contents : std::max(contents, contents_of(tensor)));
}

void set_to_zero(const Tensor& tensor) {
  const ElementBytes bytes = bytes_of(tensor);
  if (tensor.is_non_overlapping_and_dense() && bytes.size > 0) {
    std::memset(orGetKernelPointer(bytes.begin), 0, bytes.size);
  }
}

bool is_absent_on_host(const Tensor& tensor) {
  const std::lock_guard lock(host_mutex);
  const auto found = host_storages().find(storage_of(tensor));
  return found != host_storages().end() && !found->second.expired();
}

bool make_absent_on_host(const Tensor& tensor) {
  c10::StorageImpl* const storage = storage_of(tensor);
  if (!storage || is_small(tensor) || tensor.nbytes() != storage->nbytes() || !tensor.is_non_overlapping_and_dense() ||
      !is_plain_memory(*storage)) {
    return false;
  }
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const begin = static_cast<char*>(storage->mutable_data());
  char* const end = begin + storage->nbytes();
  auto* const first = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page);
  auto* const last = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) / page * page);
  if (first >= last || madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED) != 0) {
    return false;
  }
  std::memset(begin, 0, static_cast<size_t>(first - begin));
  std::memset(last, 0, static_cast<size_t>(end - last));
  const std::lock_guard lock(host_mutex);
  HostStorages& storages = host_storages();
  for (auto each = storages.begin(); each != storages.end();) {
    each = each->second.expired() ? storages.erase(each) : std::next(each);
  }
  const auto reference = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  storages.insert_or_assign(storage, c10::weak_intrusive_ptr<c10::StorageImpl>(reference));
  return true;
}

void set_present_on_host(const Tensor& tensor) {
  const std::lock_guard lock(host_mutex);
  host_storages().erase(storage_of(tensor));
}

} // namespace at::openreg
