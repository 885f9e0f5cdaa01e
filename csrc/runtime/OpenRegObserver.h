#pragma once

#include <c10/core/Stream.h>
#include <c10/util/typeid.h>
#include <openreg.h>

#include <atomic>
#include <optional>

namespace c10 {
class OperatorHandle;
}

// The observer of this library: a tool that must know or change more than the activities of the device library
// (openreg_activity.h) allow. Without a tool there is no observer, and each place that would call it costs one branch.
// A backend for hardware needs no observer.
//
// Rule: no function of the observer is called under a lock of this library, so the observer may wait. Only the
// functions that may throw say so.
namespace c10::openreg {

// How this library calls the device library.
enum class CallKind {
  Internal,  // for its own purposes, not for the program: memory or an event that it keeps, for example
  UnderLock, // for the program, but under a lock, where no thread may wait for Python (OpenRegMutex.h)
};

class RuntimeObserver {
 public:
  // ---- device memory, in the order in which the caching allocator calls the functions

  // Before a block of `size` bytes is allocated. The result is the number of unused bytes that the allocator must leave
  // behind the block's contents; the statistics do not count them. If the result is nullopt, the allocator behaves as
  // if the device were full. May throw.
  virtual std::optional<size_t> before_alloc(DeviceIndex device, size_t size) = 0;

  // After `size` bytes at `address` were taken from the device, before any of them is handed out.
  virtual void after_segment_alloc(const void* address, size_t size) = 0;

  // Before freed memory of `stream` may be allocated again. The allocator does not reuse the memory before `event` has
  // passed, which it then owns; null: no event. It leaves the last `idle` bytes that were freed on a device unused, as
  // long as the device has other memory.
  struct Reuse {
    orEvent_t event;
    size_t idle;
  };
  virtual Reuse before_reuse(void* address, size_t size, Stream stream) = 0;

  // ---- operators. Both functions may throw.

  // Before a new tensor of this dtype is made on the device.
  virtual void before_new_tensor(caffe2::TypeMeta dtype) = 0;

  // Before the fallback runs an operator that has no kernel of its own.
  virtual void before_fallback(const OperatorHandle& op) = 0;

  // ---- streams and waits. These functions may throw.

  // Before a stream that exists already is taken from the pool.
  virtual void before_stream_from_pool(DeviceIndex device) = 0;

  // After the host has waited for the device.
  virtual void after_host_wait() = 0;

  // After a call of the device library has failed, before its error is thrown.
  virtual void after_failed_call() = 0;

  // ---- The calls to the device library between begin_calls() and end_calls(), on this thread, are of this kind.
  virtual void begin_calls(CallKind kind) = 0;
  virtual void end_calls(CallKind kind) = 0;

 protected:
  ~RuntimeObserver() = default;
};

namespace detail {
inline std::atomic<RuntimeObserver*> observer{nullptr};
} // namespace detail

// Null: nobody observes.
inline RuntimeObserver* observer() {
  return detail::observer.load(std::memory_order_acquire);
}

// The observer must live until the process ends.
inline void set_observer(RuntimeObserver* chosen) {
  detail::observer.store(chosen, std::memory_order_release);
}

// To be called before a new tensor of the device gets its dtype: where its memory is allocated, and for the results of
// kernels.
inline void notify_new_tensor(caffe2::TypeMeta dtype) {
  if (RuntimeObserver* const known = observer(); C10_UNLIKELY(known)) {
    known->before_new_tensor(dtype);
  }
}

// To be called after the program has waited for the device.
inline void notify_host_wait() {
  if (RuntimeObserver* const known = observer(); C10_UNLIKELY(known)) {
    known->after_host_wait();
  }
}

// While an object of this class exists, the calls of its thread to the device library are of this kind. An object of
// the kind UnderLock must be made before the lock is taken.
class ObservedCalls {
 public:
  explicit ObservedCalls(CallKind kind) : observer_(observer()), kind_(kind) {
    if (C10_UNLIKELY(observer_)) {
      observer_->begin_calls(kind_);
    }
  }
  ~ObservedCalls() {
    if (C10_UNLIKELY(observer_)) {
      observer_->end_calls(kind_);
    }
  }
  ObservedCalls(const ObservedCalls&) = delete;
  ObservedCalls& operator=(const ObservedCalls&) = delete;

 private:
  RuntimeObserver* const observer_;
  const CallKind kind_;
};

} // namespace c10::openreg
