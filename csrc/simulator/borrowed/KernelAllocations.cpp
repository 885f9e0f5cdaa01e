#include "simulator/borrowed/KernelAllocations.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

thread_local KernelAllocations* running = nullptr; // the kernel that this thread runs

// PyTorch's CPU allocator is this class from the first kernel on. Kernels also call raw_allocate() and
// raw_deallocate(). raw_deallocate() gets only an address, so the deleter finds out from the address whether it frees
// host memory or device memory.
class CpuAllocator : public c10::Allocator {
 public:
  DataPtr allocate(size_t size) override {
    KernelAllocations* const kernel = running;
    return kernel && size > 0 ? kernel->allocate(size) : allocate_on_host(size);
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
    } else if (C10_LIKELY(!running || !running->reserves(pointer))) { // a result owns its reserved memory
      device_allocator()->raw_deleter()(pointer);
    }
  }
};

// See view_allocator().
class ViewAllocator final : public CpuAllocator {
 public:
  DataPtr allocate(size_t size) override {
    return running ? running->allocate_output(size) : allocate_on_host(size);
  }

  static ViewAllocator* get() {
    CpuAllocator::install();
    static auto* allocator = new ViewAllocator;
    return allocator;
  }
};

} // namespace

bool in_kernel_window(const void* address) {
  return orGetDevicePointer(address) != address;
}

Allocator* view_allocator() {
  return ViewAllocator::get();
}

KernelAllocations::KernelAllocations(DeviceIndex device, Allocations results)
    : previous_(running), device_(device), results_(results) {
  CpuAllocator::install();
  running = this;
}

KernelAllocations::KernelAllocations(ArrayRef<StorageImpl*> reserved, Allocations results)
    : previous_(running), device_(-1), results_(results), reserved_(reserved) {
  running = this;
}

KernelAllocations::~KernelAllocations() {
  running = previous_;
}

DataPtr KernelAllocations::allocate(size_t size) {
  const unsigned number = count_++;
  DataPtr data = place(size, results_ >> std::min(number, kLast) & 1);
  if (C10_LIKELY(number < kLast)) {
    addresses_[number] = data.get();
  }
  return data;
}

DataPtr KernelAllocations::place(size_t size, bool is_result) {
  if (!is_result) {
    return CpuAllocator::allocate_on_host(size);
  }
  if (device_ >= 0) {
    return device_allocator()->allocate_for_kernel(size, device_);
  }
  for (size_t i = 0; i < reserved_.size(); ++i) {
    if (reserved_[i]->nbytes() == size && !(handed_out_ >> i & 1)) {
      handed_out_ |= uint32_t{1} << i;
      void* const address = reserved_[i]->mutable_data();
      return {address, address, &c10::detail::deleteNothing, Device(DeviceType::CPU)};
    }
  }
  return CpuAllocator::allocate_on_host(size);
}

DataPtr KernelAllocations::allocate_output(size_t size) {
  return device_ >= 0 ? device_allocator()->allocate_for_kernel(size, device_) : CpuAllocator::allocate_on_host(size);
}

bool KernelAllocations::reserves(const void* address) const {
  return std::any_of(
      reserved_.begin(), reserved_.end(), [&](const StorageImpl* memory) { return memory->data() == address; });
}

void KernelAllocations::note_result(const void* address) {
  noted_ = true;
  for (unsigned number = std::min(count_, kLast); number > 0; --number) { // the last allocation at this address
    if (addresses_[number - 1] == address) {
      found_ |= Allocations{1} << (number - 1);
      return;
    }
  }
  if (count_ > kLast && ++late_results_ == count_ - kLast) { // all further allocations became results
    found_ |= Allocations{1} << kLast;
  }
}

HostAllocations::HostAllocations() : kernel_(std::exchange(running, nullptr)) {}

HostAllocations::~HostAllocations() {
  running = kernel_;
}

} // namespace c10::openreg
