#include "OpenRegStorage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COWDeleter.h>

#include <algorithm>
#include <cstring>

#include "OpenRegStream.h"
#include "memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

// Where the calling thread's CPU allocations come from: a device, the host, or a queued kernel's reserved memory.
constexpr DeviceIndex kHost = -1, kReserved = -2;
thread_local DeviceIndex kernel_device = kHost;
thread_local bool only_writes = false;
thread_local ReservedAllocations* reserved = nullptr;

bool in_kernel_window(const void* pointer) {
  return orGetDevicePointer(pointer) != pointer;
}

// The CPU's allocator from the first kernel on. It must tell both kinds of memory apart when freeing too, because kernels
// use raw_allocate() and raw_deallocate().
class CpuAllocator : public c10::Allocator {
 public:
  DataPtr allocate(size_t size) override {
    if (kernel_device >= 0) {
      DataPtr data = device_allocator()->allocate_for_kernel(size, kernel_device, !only_writes);
      if (C10_LIKELY(data || size == 0)) {
        return data;
      }
    } else if (C10_UNLIKELY(kernel_device == kReserved)) {
      return reserved->allocate(size);
    }
    return allocate_on_host(size);
  }

  static DataPtr allocate_on_host(size_t size) {
    DataPtr data = host_->allocate(size);
    const bool exchanged = data.compare_exchange_deleter(host_->raw_deleter(), &release);
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(exchanged);
    return data;
  }

  DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* destination, const void* source, size_t size) const override {
    default_copy_data(destination, source, size);
  }

  static void install() {
    static const bool installed = [] {
      host_ = c10::GetCPUAllocator();
      c10::SetCPUAllocator(new CpuAllocator, /*priority=*/100);
      return true;
    }();
    (void)installed;
  }

 private:
  static inline c10::Allocator* host_ = nullptr;

  static void release(void* pointer) {
    if (!in_kernel_window(pointer)) {
      host_->raw_deleter()(pointer);
    } else if (C10_LIKELY(kernel_device != kReserved || !reserved->has(pointer))) { // that is the result's
      device_allocator()->raw_deleter()(pointer);
    }
  }
};

// A twin's: what a kernel resizes is no temporary.
class TwinAllocator final : public CpuAllocator {
 public:
  DataPtr allocate(size_t size) override {
    const KernelAllocations required(kernel_device);
    return CpuAllocator::allocate(size);
  }

  static TwinAllocator* get() {
    CpuAllocator::install();
    static auto* allocator = new TwinAllocator;
    return allocator;
  }
};

intrusive_ptr<StorageImpl> make_twin(const StorageImpl* storage, DataPtr data) {
  return make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(storage->nbytes()),
      std::move(data),
      TwinAllocator::get(),
      storage->resizable());
}

intrusive_ptr<StorageImpl> make_twin(const StorageImpl* storage) {
  return make_twin(storage, DataPtr(orGetKernelPointer(storage->data()), Device(DeviceType::CPU))); // borrowed
}

// A copy-on-write storage gets memory of its own when its accessors are asked for memory to write. A kernel that writes
// through a plain twin does not ask, so the storage must get its own memory before.
void materialize(StorageImpl* storage) {
  if (C10_UNLIKELY(is_cow(storage))) {
    storage->mutable_data();
  }
}

// Gives `storage` other memory, which it shares with nobody.
void replace_memory(StorageImpl* storage, DataPtr data, size_t size) {
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(size);
  if (C10_UNLIKELY(storage->has_materializer())) {
    storage->clear_materializer();
  }
}

intrusive_ptr<StorageImpl> create(
    StorageImpl::use_byte_size_t, SymInt size, DataPtr data, Allocator* allocator, bool resizable) {
  const auto bytes = size.as_int_unchecked();
  if (!data) { // also for 0 bytes: the pointer carries the device
    data = allocator->allocate(bytes);
  }
  return make_intrusive<OpenRegStorageImpl>(
      StorageImpl::use_byte_size_t(), bytes, std::move(data), allocator, resizable);
}

// Storages that Python makes: torch.UntypedStorage(n, device="openreg"), torch.load.
const bool registered = [] {
  c10::SetStorageImplCreate(DeviceType::PrivateUse1, &create);
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
  // Another one also when the storage was resized or swapped: queued kernels still use the twin of its old memory.
  if (C10_UNLIKELY(!twin || twin->data() != orGetKernelPointer(data()) || twin->nbytes() != nbytes())) {
    StorageImpl* made = make_twin(this).release();
    const bool first = twin_.compare_exchange_strong(twin, made, std::memory_order_acq_rel);
    if (StorageImpl* unused = first ? twin : made) { // made: another thread was first
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
  const KernelAllocations on_host(kHost);
  DataPtr copy = TwinAllocator::get()->allocate(twin->nbytes());
  if (twin->nbytes() > 0) {
    std::memcpy(copy.get(), twin->data(), twin->nbytes());
  }
  twin->set_data_ptr_noswap(std::move(copy));
}

bool is_fresh(const StorageImpl* storage) {
  return storage->data_ptr().get_context() != nullptr && !is_cow(storage) && in_kernel_window(storage->data());
}

intrusive_ptr<StorageImpl> make_storage(size_t size, DeviceIndex device) {
  OpenRegDeviceAllocator* allocator = device_allocator();
  return make_intrusive<OpenRegStorageImpl>(
      StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(size),
      allocator->allocate_on(size, device),
      allocator,
      /*resizable=*/true);
}

intrusive_ptr<StorageImpl> twin_of(StorageImpl* storage) {
  if (C10_LIKELY(keeps_twin(storage))) {
    return intrusive_ptr<StorageImpl>::reclaim_copy(static_cast<OpenRegStorageImpl*>(storage)->twin());
  }
  return new_twin(storage);
}

void resize_storage(StorageImpl* storage, size_t size) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const DeviceIndex device = storage->device().index();
  DataPtr data = device_allocator()->allocate_on(size, device);
  const size_t kept = std::min(size, storage->nbytes());
  if (kept > 0) {
    const Stream stream = current_stream(device);
    OPENREG_CHECK(orMemcpyAsync(data.get(), storage->data(), kept, orMemcpyDeviceToDevice, stream_handle(stream)));
  }
  replace_memory(storage, std::move(data), size);
}

intrusive_ptr<StorageImpl> adopt_storage(intrusive_ptr<StorageImpl> storage, DeviceIndex device) {
  DataPtr& data = storage->mutable_data_ptr();
  void* const address = orGetDevicePointer(data.get());
  const size_t size = storage->nbytes();
  if (C10_UNLIKELY(size > 0 && address == data.get())) {
    // Allocated by a thread of the kernel's own, or kept alive by someone else, or by a kernel that should have written
    // only.
    auto copy = make_storage(size, device);
    std::memcpy(orGetKernelPointer(copy->data()), address, size);
    return copy;
  }
  DataPtr owned(address, address, data.get_deleter(), Device(DeviceType::PrivateUse1, device));
  data.release_context(); // from now on it is borrowed
  return make_intrusive<OpenRegStorageImpl>(size, std::move(owned), std::move(storage));
}

void take_over(StorageImpl* storage, StorageImpl* twin) {
  if (C10_LIKELY(twin->data() == orGetKernelPointer(storage->data()))) {
    return;
  }
  const auto adopted = adopt_storage(intrusive_ptr<StorageImpl>::reclaim_copy(twin), storage->device().index());
  replace_memory(storage, adopted->set_data_ptr(DataPtr()), adopted->nbytes());
}

KernelAllocations::KernelAllocations(DeviceIndex device, bool only_writes)
    : previous_(kernel_device), previously_only_writes_(openreg::only_writes) {
  CpuAllocator::install();
  kernel_device = device;
  openreg::only_writes = only_writes;
}

KernelAllocations::~KernelAllocations() {
  kernel_device = previous_;
  only_writes = previously_only_writes_;
}

bool KernelAllocations::active() {
  return kernel_device >= 0;
}

ReservedAllocations::ReservedAllocations(ArrayRef<ReservedMemory> memory) : reserved_(memory.begin(), memory.end()) {
  kernel_device = kReserved; // only ever on a thread of the device's, whose allocations were the host's
  reserved = this;
}

ReservedAllocations::~ReservedAllocations() {
  kernel_device = kHost;
  reserved = nullptr;
}

DataPtr ReservedAllocations::allocate(size_t size) {
  const auto has_size = [&](const auto& each) { return each.second == size; };
  const size_t turn = std::count_if(allocated_.begin(), allocated_.end(), has_size);
  bool is_reserved_size = false;
  DataPtr data;
  for (const ReservedMemory& memory : reserved_) {
    if (memory.storage->nbytes() == size) {
      is_reserved_size = true;
      if (memory.turn == turn) {
        void* address = memory.storage->mutable_data();
        data = {address, address, &c10::detail::deleteNothing, Device(DeviceType::CPU)};
      }
    }
  }
  if (!data) {
    data = device_allocator()->allocate_temporary(size);
  }
  if (!data) {
    data = CpuAllocator::allocate_on_host(size);
  }
  if (is_reserved_size) {
    allocated_.emplace_back(data.get(), size);
  }
  return data;
}

bool ReservedAllocations::has(const void* address) const {
  return std::any_of(reserved_.begin(), reserved_.end(), [&](const ReservedMemory& memory) {
    return memory.storage->data() == address;
  });
}

std::optional<size_t> ReservedAllocations::turn_of(const void* address) const {
  for (auto last = allocated_.end(); last != allocated_.begin();) {
    --last;
    if (last->first == address) {
      return std::count_if(
          allocated_.begin(), last, [&](const auto& earlier) { return earlier.second == last->second; });
    }
  }
  return std::nullopt;
}

} // namespace c10::openreg
