#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <mutex>

// LITERALINCLUDE START: LOCK RULES
// Rule for every lock of this project, in csrc and in third_party/openreg:
//
//   1. It is a leaf: while it is held, nothing is waited for. Not the device, not Python's interpreter, and no function of
//      somebody else's is called that could. Below the allocator's lock, and only there, the device's own locks are
//      taken. What a thread may hold while it waits is the turn of a stream, which is no lock: whoever waits for a turn
//      gives the interpreter up first (orSetWaitCallbacks).
//   2. A forked child never waits for it: either what takes the lock refuses before (check_not_forked() here,
//      deviceCall() in the device library), or the lock is a ForkSafeMutex.
//
// tests/test_locks.py has the list of all locks and of their answers.
// LITERALINCLUDE END: LOCK RULES
namespace c10::openreg {

// A mutex that a child finds free: fork() waits until no other thread holds it.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() {
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
};

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
