#include <ATen/core/CachingHostAllocator.h>

#include <chrono>

#include <openreg_activity.h>

#include "../OpenRegStream.h"

// Pinned host memory, cached by PyTorch's own CachingHostAllocatorImpl. A block that is freed is reused when every stream
// that record_event() named has passed the block's event. The backend supplies the allocation, the recording of events and
// their query.
namespace c10::openreg {
namespace {

// Owns an event of the device.
struct HostEvent {
  orEvent_t handle;

  explicit HostEvent(const Stream& stream) : handle(create_event(stream)) {
    OPENREG_CHECK(orEventRecord(handle, stream_handle(stream)));
  }
  HostEvent(HostEvent&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  HostEvent& operator=(HostEvent&& other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~HostEvent() {
    if (handle) {
      orEventDestroy(handle);
    }
  }
};

// Adds the microseconds between its construction and its destruction to a statistic.
class Timer {
 public:
  Timer(std::mutex& mutex, at::DurationStat& stat) : mutex_(mutex), stat_(stat) {}
  ~Timer() {
    const auto taken = std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(mutex_);
    stat_.increase(std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
  }

 private:
  std::mutex& mutex_;
  at::DurationStat& stat_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// LITERALINCLUDE START: HOST ALLOCATOR
struct HostAllocatorImpl final : at::CachingHostAllocatorImpl<Stream, HostEvent> {
  void copy_data(void* destination, const void* source, size_t size) const override {
    std::memcpy(destination, source, size);
  }

 private:
  void allocate_host_memory(size_t size, void** pointer) override {
    const Timer timer(stats_.timing_mutex_, stats_.host_alloc_time);
    OPENREG_CHECK(orMallocHost(pointer, size));
  }

  void free_block(at::HostBlock<Stream>* block) override {
    const Timer timer(stats_.timing_mutex_, stats_.host_free_time);
    orFreeHost(block->ptr_);
  }

  void record_stream(std::optional<std::vector<HostEvent>>& events, Stream stream) override {
    events->emplace_back(stream);
  }

  bool query_event(HostEvent& event) override {
    return orEventQuery(event.handle) != orErrorNotReady;
  }

  Stream get_current_stream() const override {
    return current_stream(-1);
  }
};
// LITERALINCLUDE END: HOST ALLOCATOR

void release(void* context);

// A forked child may read pinned memory and free it. There PyTorch's allocator must not be called: another thread of the
// parent may have held its locks at the fork, and it would record events on a device that the child does not have.
struct OpenRegHostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, &release> {
  using Base = at::CachingHostAllocatorInterface<HostAllocatorImpl, &release>;

  at::DataPtr allocate(size_t size) override {
    check_not_forked();
    DataPtr memory = Base::allocate(size);
    orNoteAllocation(memory.get(), size, nullptr);
    return memory;
  }
  bool record_event(void* pointer, void* context, Stream stream) override {
    check_not_forked();
    return Base::record_event(pointer, context, stream);
  }
  void empty_cache() override {
    if (!orIsInBadFork()) {
      Base::empty_cache();
    }
  }
  at::HostStats get_stats() override {
    return orIsInBadFork() ? at::HostStats() : Base::get_stats();
  }
  void reset_accumulated_stats() override {
    if (!orIsInBadFork()) {
      Base::reset_accumulated_stats();
    }
  }
  void reset_peak_stats() override {
    if (!orIsInBadFork()) {
      Base::reset_peak_stats();
    }
  }
};

OpenRegHostAllocator* instance() {
  static auto* allocator = new OpenRegHostAllocator; // leaked: tensors may outlive static destructors
  return allocator;
}

void release(void* context) {
  if (!orIsInBadFork()) {
    const auto* const block = static_cast<const at::HostBlock<Stream>*>(context);
    orNoteFree(block->ptr_, block->size_, nullptr);
    instance()->free(context);
  }
}

REGISTER_HOST_ALLOCATOR(DeviceType::PrivateUse1, instance());

} // namespace
} // namespace c10::openreg
