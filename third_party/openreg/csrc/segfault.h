#pragma once

#include <mutex>

namespace openreg {

// Says in words, on stderr, which device memory was touched by a host access that raised SIGSEGV, then lets the handler
// that was there before do its work. Every other SIGSEGV goes to that handler unchanged.
void installSegfaultHandler();

// While one lives, a thread that writes to device memory which was made read-only (setWritable) waits, instead of ending
// the process, and then writes again. The caller holds the lock of the DeviceMemory until the memory is writable again.
class HeldWriters {
 public:
  HeldWriters();
  ~HeldWriters();
  HeldWriters(const HeldWriters&) = delete;
  HeldWriters& operator=(const HeldWriters&) = delete;

 private:
  static inline std::mutex mutex_; // one at a time: the handler is the process's
};

} // namespace openreg
