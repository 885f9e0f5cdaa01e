#pragma once

#include <c10/macros/Macros.h>

#include <atomic>

namespace c10::openreg {

// For what is locked at every operator: one atomic instruction to take it and one to leave it, inline, where std::mutex
// calls the C library twice, which two dozen nanoseconds of an operator went to. Who has to wait sleeps.
//
// Follows U. Drepper, "Futexes Are Tricky", the second mutex.
class Mutex {
 public:
  void lock() {
    int state = kFree;
    if (C10_UNLIKELY(!state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire))) {
      wait();
    }
  }

  void unlock() {
    if (C10_UNLIKELY(state_.exchange(kFree, std::memory_order_release) == kAwaited)) {
      state_.notify_one();
    }
  }

 private:
  static constexpr int kFree = 0, kHeld = 1, kAwaited = 2; // awaited: held, and somebody may be asleep

  std::atomic<int> state_{kFree};

  C10_NOINLINE void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }
};

} // namespace c10::openreg
