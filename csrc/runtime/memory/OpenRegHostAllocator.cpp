#include "runtime/memory/OpenRegHostAllocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <chrono>
#include <map>
#include <optional>

#include <openreg_activity.h>
#include <openreg_progress.h>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStream.h"

// Pinned host memory, cached by PyTorch's own CachingHostAllocatorImpl. A block that is freed is reused when every
// stream that record_event() named has passed the block's event. The backend supplies the allocation, the recording of
// events and their query.
namespace c10::openreg {
namespace {

// Owns an event of the device.
struct HostEvent {
  orEvent_t handle;

  explicit HostEvent(const Stream& stream) : handle(create_event(stream)) {
    OPENREG_CHECK(orEventRecord(handle, OpenRegStream(stream).stream()));
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
    const ObservedCalls calls(CallKind::Internal);
    std::optional<UnsafeCalls> unsafe;
    if (current_stream_is_capturing_fast_path()) { // as the device's memory: a capture does not refuse it
      unsafe.emplace();
    }
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
    return orEventPeek(event.handle) != orErrorNotReady;
  }

  Stream get_current_stream() const override {
    return getCurrentOpenRegStream(-1);
  }

  bool stream_is_capturing(Stream stream) const override {
    return capture_of(stream) != 0;
  }
};
// LITERALINCLUDE END: HOST ALLOCATOR

// The blocks in use that were allocated while stack traces were recorded.
class RecordedBlocks {
 public:
  void record(CachingDeviceAllocator::CreateContextFn gather) {
    gather_ = gather;
  }

  void add(const void* address, size_t size) {
    const auto gather = gather_.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(gather && address)) {
      PinnedBlock block{address, size, gather()}; // gather() needs Python's GIL, so the lock is taken later
      const std::lock_guard lock(mutex_);
      blocks_[address] = std::move(block);
      any_ = true;
    }
  }

  void remove(const void* address) {
    if (C10_UNLIKELY(any_.load(std::memory_order_relaxed))) {
      std::map<const void*, PinnedBlock>::node_type removed; // destroyed after the lock is released
      const std::lock_guard lock(mutex_);
      removed = blocks_.extract(address);
    }
  }

  std::vector<PinnedBlock> all() {
    std::vector<PinnedBlock> found;
    const std::lock_guard lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      found.push_back(block);
    }
    return found;
  }

 private:
  std::atomic<CachingDeviceAllocator::CreateContextFn> gather_{nullptr};
  std::atomic<bool> any_{false};
  ForkSafeMutex mutex_;
  std::map<const void*, PinnedBlock> blocks_;
};

RecordedBlocks& recorded_blocks() {
  static auto* blocks = new RecordedBlocks; // leaked: tensors may outlive static destructors
  return *blocks;
}

void release(void* context);

// A forked child may read pinned memory and free it. PyTorch's allocator must not be called in the child: another
// thread of the parent may have held the allocator's locks at the fork, and the allocator would record events on a
// device that the child does not have.
struct OpenRegHostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, &release> {
  using Base = at::CachingHostAllocatorInterface<HostAllocatorImpl, &release>;

  at::DataPtr allocate(size_t size) override {
    check_not_forked();
    DataPtr memory = Base::allocate(size);
    recorded_blocks().add(memory.get(), size);
    orNoteAllocation(memory.get(), size, nullptr);
    return memory;
  }
  bool record_event(void* pointer, void* context, Stream stream) override {
    check_not_forked();
    orNoteUse(pointer, OpenRegStream(stream).stream());
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

OpenRegHostAllocator* pinned_allocator() {
  static auto* allocator = new OpenRegHostAllocator; // leaked: tensors may outlive static destructors
  return allocator;
}

void release(void* context) {
  if (!orIsInBadFork()) {
    const auto* const block = static_cast<const at::HostBlock<Stream>*>(context);
    recorded_blocks().remove(block->ptr_);
    orNoteFree(block->ptr_, block->size_, nullptr);
    pinned_allocator()->free(context);
  }
}

} // namespace

at::HostAllocator* host_allocator() {
  return pinned_allocator();
}

void record_pinned_memory(CachingDeviceAllocator::CreateContextFn gather) {
  recorded_blocks().record(gather);
}

std::vector<PinnedBlock> recorded_pinned_memory() {
  return recorded_blocks().all();
}

} // namespace c10::openreg
