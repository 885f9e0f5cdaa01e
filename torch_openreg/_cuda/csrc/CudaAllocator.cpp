#include "CudaAllocator.h"

#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "Forward.h"
#undef REGISTER_FREE_MEMORY_CALLBACK // CUDA's macro, whose name the next header has for its own registry
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

using namespace c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAStream;

[[noreturn]] void refuse(const char* function) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "c10::cuda::CUDACachingAllocator::",
      function,
      "() is not available in C++ for the simulated device: call torch.cuda.memory.");
}

// The device's allocator as the class that C++ extensions know. Python's functions do not pass here.
struct CudaAllocator final : public CUDAAllocator {
  // ---- as every allocator of a device
  DataPtr allocate(size_t size) override {
    return device_allocator()->allocate(size);
  }
  DeleterFnPtr raw_deleter() const override {
    return device_allocator()->raw_deleter();
  }
  void copy_data(void* destination, const void* source, size_t size) const override {
    device_allocator()->copy_data(destination, source, size);
  }
  bool initialized() override {
    return device_allocator()->initialized();
  }
  void emptyCache(MempoolId_t pool) override {
    device_allocator()->emptyCache(pool);
  }
  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return device_allocator()->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    device_allocator()->resetAccumulatedStats(device);
  }
  void resetPeakStats(DeviceIndex device) override {
    device_allocator()->resetPeakStats(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return device_allocator()->getMemoryInfo(device);
  }

  // ---- CUDA's
  std::string name() override {
    return "native";
  }
  // The device starts at its first use.
  void init(int /*device_count*/) override {}
  void* raw_alloc(size_t size) override {
    return device_allocator()->raw_allocate(size);
  }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    const StreamGuard guard(stream_of_pointer(reinterpret_cast<uintptr_t>(stream), c10::cuda::current_device()));
    return raw_alloc(size);
  }
  void raw_delete(void* pointer) override {
    device_allocator()->raw_deallocate(pointer);
  }
  void recordStream(const DataPtr& data, CUDAStream stream) override {
    device_allocator()->recordStream(data, stream.unwrap());
  }
  double getMemoryFraction(DeviceIndex device) override {
    return device_allocator()->memory_fraction(device);
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    device_allocator()->set_memory_fraction(fraction, device);
  }
  bool isEnabled() const override {
    return true;
  }
  void* getBaseAllocation(void* pointer, size_t* size) override {
    orPointerAttributes attributes{};
    OPENREG_CHECK(orPointerGetAttributes(&attributes, pointer));
    TORCH_CHECK(attributes.base != nullptr, "invalid device pointer: ", pointer);
    if (size != nullptr) {
      *size = attributes.size;
    }
    return attributes.base;
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> allocator) override {
    TORCH_CHECK_NOT_IMPLEMENTED(allocator == nullptr, "A pool cannot have an allocator of its own.");
    device_allocator()->use_pool(device, pool);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    device_allocator()->begin_allocate_to_pool(device, pool, [filter = std::move(filter)](const Stream& stream) {
      return filter(reinterpret_cast<cudaStream_t>(stream_pointer(stream)));
    });
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    device_allocator()->end_allocate_to_pool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    device_allocator()->release_pool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return device_allocator()->pool_use_count(device, pool);
  }
  // Each device reaches the memory of every other, and nothing needs to be enabled.
  void enablePeerAccess(DeviceIndex /*device*/, DeviceIndex /*peer*/) override {}
  cudaError_t memcpyAsync(
      void* destination,
      int /*destination_device*/,
      const void* source,
      int /*source_device*/,
      size_t count,
      cudaStream_t stream,
      bool /*p2p_enabled*/) override {
    return cudaMemcpyAsync(destination, source, count, cudaMemcpyDeviceToDevice, stream);
  }

  // ---- what only Python has
  void enable(bool /*value*/) override {
    refuse(__func__);
  }
  void cacheInfo(DeviceIndex /*device*/, size_t* /*largest*/) override {
    refuse(__func__);
  }
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex /*device*/) override {
    refuse(__func__);
  }
  SnapshotInfo snapshot(MempoolId_t /*pool*/, bool /*traces*/) override {
    refuse(__func__);
  }
  ShareableHandle shareIpcHandle(void* /*pointer*/) override {
    refuse(__func__);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string /*handle*/) override {
    refuse(__func__);
  }
  void recordHistory(
      bool /*enabled*/,
      CreateContextFn /*recorder*/,
      size_t /*max_entries*/,
      RecordContext /*when*/,
      bool /*clear*/,
      const std::vector<std::string>& /*skipped*/) override {
    refuse(__func__);
  }
  void attachOutOfMemoryObserver(cuda::CUDACachingAllocator::OutOfMemoryObserver /*observer*/) override {
    refuse(__func__);
  }
  void attachOomRejectionObserver(OomRejectionObserver /*observer*/) override {
    refuse(__func__);
  }
  void attachAllocatorTraceTracker(AllocatorTraceTracker /*tracker*/) override {
    refuse(__func__);
  }
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex /*device*/, MempoolId_t /*pool*/) override {
    refuse(__func__);
  }
  CheckpointDelta setCheckpointPoolState(DeviceIndex /*device*/, std::shared_ptr<AllocatorState> /*state*/) override {
    refuse(__func__);
  }
};

} // namespace

void set_cuda_allocator() {
  static CudaAllocator cuda_allocator;
  cuda::CUDACachingAllocator::allocator.store(&cuda_allocator);
}

} // namespace c10::openreg
