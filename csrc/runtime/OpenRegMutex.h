#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <mutex>

// LITERALINCLUDE START: LOCK RULES
// Rule for every lock of this project, in csrc and in third_party/openreg:
//
//   1. The lock is a leaf: a thread that holds it waits for nothing. It does not wait for the device or for Python's
//      interpreter, and it calls no foreign function that could. One exception: a thread that holds a lock of csrc
//      may take the device library's own locks. The turn of a stream (openreg.h, section Kernels) is not a lock: a
//      thread that has a turn may wait for another turn. It releases the interpreter before it waits
//      (orSetWaitCallbacks).
//   2. A forked child never waits for the lock. Either the function that takes the lock throws in a forked child before
//      it takes the lock (check_not_forked() here, deviceCall() in the device library), or the lock is a ForkSafeMutex.
//
// tests/package/test_locks.py lists all locks, and says for each how it keeps the two rules.
// LITERALINCLUDE END: LOCK RULES
namespace c10::openreg {

// A mutex that is free in a forked child: fork() waits until no other thread holds it. The mutex must live until the
// process ends.
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
  ForkSafeMutex* older_;
};

// A mutex for paths that every operator takes. To lock and to unlock is one inline atomic instruction each. std::mutex
// calls the C library instead, which cost an operator about 24 ns. A thread that has to wait sleeps.
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
  static constexpr int kFree = 0, kHeld = 1, kAwaited = 2; // kAwaited: held, and a waiting thread may sleep

  std::atomic<int> state_{kFree};

  C10_NOINLINE void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }
};

} // namespace c10::openreg
