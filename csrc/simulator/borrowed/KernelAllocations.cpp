#include "simulator/borrowed/KernelAllocations.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

// Where the calling thread's CPU allocations come from: the index of a device; kHost for host memory; kReserved for the
// memory that was reserved for a queued kernel.
constexpr DeviceIndex kHost = -1, kReserved = -2;
thread_local DeviceIndex computing_device = kHost;
thread_local bool only_writes = false;
thread_local ReservedAllocations* reserved = nullptr;

// PyTorch's CPU allocator is this class from the first kernel on. Kernels also call raw_allocate() and
// raw_deallocate(). raw_deallocate() gets only an address, so the deleter finds out from the address whether it frees
// host memory or device memory.
class CpuAllocator : public c10::Allocator {
 public:
  DataPtr allocate(size_t size) override {
    if (computing_device >= 0) {
      DataPtr data = device_allocator()->allocate_for_kernel(size, computing_device, !only_writes);
      if (C10_LIKELY(data || size == 0)) {
        return data;
      }
    } else if (C10_UNLIKELY(computing_device == kReserved)) {
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
    } else if (
        C10_LIKELY(computing_device != kReserved || !reserved->has(pointer))) { // a result owns its reserved memory
      device_allocator()->raw_deleter()(pointer);
    }
  }
};

// See twin_allocator().
class TwinAllocator final : public CpuAllocator {
 public:
  DataPtr allocate(size_t size) override {
    const KernelAllocations required(computing_device);
    return CpuAllocator::allocate(size);
  }

  static TwinAllocator* get() {
    CpuAllocator::install();
    static auto* allocator = new TwinAllocator;
    return allocator;
  }
};

} // namespace

bool in_kernel_window(const void* address) {
  return orGetDevicePointer(address) != address;
}

Allocator* twin_allocator() {
  return TwinAllocator::get();
}

KernelAllocations::KernelAllocations(DeviceIndex device, bool only_writes)
    : previous_(computing_device), previously_only_writes_(openreg::only_writes) {
  CpuAllocator::install();
  computing_device = device;
  openreg::only_writes = only_writes;
}

KernelAllocations::~KernelAllocations() {
  computing_device = previous_;
  only_writes = previously_only_writes_;
}

ReservedAllocations::ReservedAllocations(ArrayRef<ReservedMemory> memory) : reserved_(memory.begin(), memory.end()) {
  computing_device = kReserved; // the value was kHost: only threads of the device run queued kernels
  reserved = this;
}

ReservedAllocations::~ReservedAllocations() {
  computing_device = kHost;
  reserved = nullptr;
}

DataPtr ReservedAllocations::allocate(size_t size) {
  const auto has_size = [&](const auto& each) { return each.second == size; };
  const size_t position = std::count_if(allocated_.begin(), allocated_.end(), has_size);
  bool is_reserved_size = false;
  DataPtr data;
  for (const ReservedMemory& memory : reserved_) {
    if (memory.storage->nbytes() == size) {
      is_reserved_size = true;
      if (memory.position == position) {
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

std::optional<size_t> ReservedAllocations::position_of(const void* address) const {
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
