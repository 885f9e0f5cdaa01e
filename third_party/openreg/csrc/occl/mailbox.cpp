#include "occl/mailbox.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace occl {

void Counter::set(uint32_t to) {
  value.store(to);
  if (sleepers.load() != 0) {
    wake();
  }
}

void Counter::increment() {
  ++value;
  if (sleepers.load() != 0) {
    wake();
  }
}

void Counter::sleep(uint32_t seen, std::chrono::nanoseconds time) {
  const timespec limit{time.count() / 1'000'000'000, time.count() % 1'000'000'000};
  ++sleepers;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value), FUTEX_WAIT, seen, &limit, nullptr, 0);
  --sleepers;
}

void Counter::wake() {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace occl
