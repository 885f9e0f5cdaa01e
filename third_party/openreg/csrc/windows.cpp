#include "windows.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "error.h"

namespace openreg {

constinit Windows windows{};

namespace {

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

// Every mapping of the windows has MADV_DONTFORK. As with CUDA, a child then has no device memory; and fork() does not
// copy the page tables of gigabytes.
bool reserveFixed(uintptr_t address, size_t size) {
  return mmap(pointer(address), size, PROT_NONE, kReserved | MAP_FIXED, -1, 0) != MAP_FAILED &&
         madvise(pointer(address), size, MADV_DONTFORK) == 0;
}

bool mapFixed(uintptr_t address, size_t size, int fd) {
  return mmap(pointer(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
         madvise(pointer(address), size, MADV_DONTFORK) == 0;
}

} // namespace

orError_t reserveWindows(int devices, size_t capacity) {
  // Twice the capacity: there must be room for fragmentation, and for memory of other processes.
  const size_t window = roundUp(2 * capacity, kHugePageSize);
  const size_t span = window * devices;
  const size_t total = 2 * span;
  void* reserved = mmap(nullptr, total + kHugePageSize, PROT_NONE, kReserved, -1, 0);
  if (reserved == MAP_FAILED) {
    const int reason = errno;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    return fail(
        orErrorMemoryAllocation,
        "cannot reserve %s of address space for %d device(s) of %s (four times their memory): %s; RLIMIT_AS "
        "(ulimit -v) is %s. Raise it, or set OPENREG_DEVICE_MEMORY or OPENREG_DEVICE_COUNT lower",
        formatBytes(total).c_str(),
        devices,
        formatBytes(capacity).c_str(),
        std::strerror(reason),
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : formatBytes(limit.rlim_cur).c_str());
  }
  madvise(reserved, total + kHugePageSize, MADV_DONTFORK);
  windows.window = window;
  windows.base.store(roundUp(reinterpret_cast<uintptr_t>(reserved), kHugePageSize), std::memory_order_relaxed);
  windows.span.store(span, std::memory_order_release);
  return orSuccess;
}

void forgetWindows() {
  windows.inherited = windows.base;
  windows.inheritedSpan = windows.span;
  windows.span = 0;
  windows.base = 0;
}

// Private anonymous pages back device memory, and pinned memory. They are replaced by a memfd only when the same bytes
// are needed at two addresses (orMemoryUnprotect, orIpcGetMemHandle), or in a forked child (pinned memory). The table
// shows the milliseconds to write 64 MiB for the first time, and to give them back. To write them again takes 2.4 in
// all rows. (Linux 6.18, virtual machine, 2 cores, transparent huge pages in "madvise" mode, median of nine.)
//
//                                      first write           free
//     malloc (the CPU device)               32.1              3.3
//     anonymous                             32.0              3.2    <- used here
//     anonymous, MADV_POPULATE_WRITE        20.6              3.3    commits memory that nobody touches
//     anonymous, MADV_HUGEPAGE         7.0 or 142             0.1    142: the hypervisor must supply the pages first
//     memfd                                 47.7              9.2
//     memfd, MADV_HUGEPAGE                  47.7              9.2    the usual setting of shmem ignores the advice
//     memfd, MADV_POPULATE_WRITE            36.0             11.3
//
// For these reasons the library leaves huge pages to the host's setting. Large allocations are aligned, so the setting
// "always" can use huge pages.
orError_t commit(uintptr_t devAddress, size_t size) {
  if (mprotect(pointer(windows.toKernel(devAddress)), size, PROT_READ | PROT_WRITE) == 0) {
    return orSuccess;
  }
  const int reason = errno;
  return fail(
      orErrorMemoryAllocation,
      "the system refused to back %s of device memory: %s. Free memory, set OPENREG_DEVICE_MEMORY lower, or look at "
      "RLIMIT_DATA (ulimit -d), vm.max_map_count and vm.overcommit_memory",
      formatBytes(size).c_str(),
      std::strerror(reason));
}

bool decommit(uintptr_t devAddress, size_t size, bool shared) {
  const uintptr_t kernelAddress = windows.toKernel(devAddress);
  if (shared) {
    return reserveFixed(kernelAddress, size) && reserveFixed(devAddress, size);
  }
  if (madvise(pointer(kernelAddress), size, MADV_DONTNEED) != 0) {
    return false;
  }
  // This call may fail if another hole would exceed vm.max_map_count. That does no harm: the pages are gone, and the
  // range can be used again. But a kernel that uses the memory after the free is then not noticed.
  mprotect(pointer(kernelAddress), size, PROT_NONE);
  return true;
}

bool mapShared(uintptr_t devAddress, size_t size, int fd) {
  return mapFixed(windows.toKernel(devAddress), size, fd);
}

bool setHostAccess(uintptr_t devAddress, size_t size, int fd, bool accessible) {
  return accessible ? mapFixed(devAddress, size, fd) : reserveFixed(devAddress, size);
}

} // namespace openreg

using namespace openreg;

void* orGetKernelPointer(const void* devPtr) {
  return pointer(windows.toKernel(reinterpret_cast<uintptr_t>(devPtr)));
}

void* orGetDevicePointer(const void* kernelPtr) {
  return pointer(windows.toDevice(reinterpret_cast<uintptr_t>(kernelPtr)));
}
