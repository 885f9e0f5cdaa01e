#include "memfd.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "windows.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U // since Linux 6.3; missing in older system headers
#endif

namespace openreg {

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

} // namespace openreg
