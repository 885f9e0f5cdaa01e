#pragma once

#include <mutex>

// The handler of SIGSEGV, which explains a wrong access to device memory.
namespace openreg {

// Installs a handler for SIGSEGV. The handler writes a sentence to stderr if the host has accessed device memory, if a
// kernel has accessed memory that is not allocated, or if a forked child has accessed its parent's device memory. Then,
// as for every other SIGSEGV, it calls the handler that was installed before. If HeldWriters holds the thread, the
// handler returns, and the thread tries the access again.
void installSegfaultHandler();

// While an object of this class lives, device memory and pinned memory may be read-only: a thread that writes to it
// waits, and then writes again. Without this class the write would end the process. The caller holds the lock of the
// allocations until the memory is writable again.
class HeldWriters {
 public:
  HeldWriters();
  ~HeldWriters();
  HeldWriters(const HeldWriters&) = delete;
  HeldWriters& operator=(const HeldWriters&) = delete;

 private:
  static inline std::mutex mutex_; // one object at a time, because the process has only one handler
};

} // namespace openreg
