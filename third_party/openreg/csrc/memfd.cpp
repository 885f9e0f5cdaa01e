#include "memfd.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.h"
#include "host_limits.h"
#include "segfault.h"
#include "windows.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U // since Linux 6.3; missing in older system headers
#endif

namespace openreg {
namespace {

// Copies `size` bytes, a multiple of kPageSize, to the file. Returns false, with errno, after a failure.
//
// Pages of zeros are left out: memory that was never touched stays uncommitted. The bytes go through pwrite(), not
// through a mapping, so a lack of memory is an error and not SIGBUS.
bool copyToFile(int fd, const char* source, size_t size) {
  static constexpr char kZeros[kPageSize] = {};
  for (size_t offset = 0; offset < size; offset += kPageSize) {
    if (std::memcmp(source + offset, kZeros, kPageSize) != 0 &&
        pwrite(fd, source + offset, kPageSize, static_cast<off_t>(offset)) != static_cast<ssize_t>(kPageSize)) {
      return false;
    }
  }
  return true;
}

} // namespace

int createMemfd(size_t size) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = memfd_create("openreg", kFlags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) {
    fd = memfd_create("openreg", kFlags);
  }
  if (fd >= 0 && (ftruncate(fd, static_cast<off_t>(size)) != 0 || fcntl(fd, F_ADD_SEALS, kMemfdSeals) != 0)) {
    const int reason = errno;
    close(fd);
    errno = reason;
    return -1;
  }
  return fd;
}

orError_t moveToMemfd(const char* kind, void* memory, size_t size, int advice, int& fd) {
  // The bytes are charged and uncharged at once. This checks that the host can hold them twice for a moment.
  if (orError_t error = chargeHostMemory(size); error != orSuccess) {
    return error;
  }
  unchargeHostMemory(size);
  const int file = createMemfd(size);
  bool moved = file >= 0;
  if (moved) {
    const HeldWriters held;
    moved = mprotect(memory, size, PROT_READ) == 0 && copyToFile(file, static_cast<const char*>(memory), size) &&
            mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED &&
            madvise(memory, size, advice) == 0;
    if (!moved) {
      const int reason = errno;
      mprotect(memory, size, PROT_READ | PROT_WRITE);
      errno = reason;
    }
  }
  if (!moved) {
    const int reason = errno;
    if (file >= 0) {
      close(file);
    }
    return fail(
        orErrorMemoryAllocation,
        "cannot move %s of %s to a memfd: %s. Free host memory, or raise the limit on open files (ulimit -n)",
        formatBytes(size).c_str(),
        kind,
        std::strerror(reason));
  }
  fd = file;
  return orSuccess;
}

} // namespace openreg
