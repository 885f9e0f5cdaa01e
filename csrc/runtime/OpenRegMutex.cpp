#include "runtime/OpenRegMutex.h"

#include <pthread.h>

namespace c10::openreg {

// The mutexes form a list, from the newest to the oldest. A thread may make a mutex (in a function-local static) while
// another thread makes one or calls fork(). In the forked child, a lock of the list could stay held forever. So there
// is no such lock: an atomic operation adds a mutex.
ForkSafeMutex::ForkSafeMutex() {
  static std::atomic<ForkSafeMutex*> newest{nullptr};
  static ForkSafeMutex* newest_at_fork = nullptr;
  constexpr auto unlock_all = [] {
    for (ForkSafeMutex* each = newest_at_fork; each; each = each->older_) {
      each->unlock();
    }
  };
  [[maybe_unused]] static const int registered = pthread_atfork(
      [] {
        newest_at_fork = newest.load(std::memory_order_acquire);
        for (ForkSafeMutex* each = newest_at_fork; each; each = each->older_) {
          each->lock();
        }
      },
      unlock_all,
      unlock_all);
  older_ = newest.load(std::memory_order_acquire);
  while (!newest.compare_exchange_weak(older_, this, std::memory_order_acq_rel)) {
  }
}

} // namespace c10::openreg
