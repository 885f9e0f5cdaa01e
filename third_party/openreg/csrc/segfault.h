#pragma once

#include <mutex>

// The handler of SIGSEGV, which explains an access of the host to device memory.
namespace openreg {

// Installs a handler for SIGSEGV. If the host has accessed device memory, the handler writes a sentence about that
// memory to stderr, and then calls the handler that was installed before. Every other SIGSEGV goes to that handler
// unchanged.
void installSegfaultHandler();

// While an object of this class lives, device memory may be read-only (setWritable): a thread that writes to it waits,
// and then writes again. Without this class the write would end the process. The caller holds the lock of the
// DeviceMemory until the memory is writable again.
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
