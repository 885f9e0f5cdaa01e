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

// Every mapping of the windows carries MADV_DONTFORK: as with CUDA a child has no device memory, and a fork does not
// copy page tables of gigabytes.
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
  // Twice the capacity leaves room for fragmentation, and for memory imported from other processes.
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

// What backs device memory: private anonymous pages, which become a memfd only when the same bytes are needed at
// two addresses: orMemoryUnprotect, orIpcGetMemHandle. Milliseconds to write 64 MiB for the first time, and to give it
// back (Linux 6.18, virtual machine, 2 cores, transparent huge pages in "madvise" mode, median of nine; writing it
// again takes 2.4 in all rows):
//
//                                      first write           free
//     malloc (the CPU device)               32.1              3.3
//     anonymous                             32.0              3.2    <- this
//     anonymous, MADV_POPULATE_WRITE        20.6              3.3    would commit memory that nobody touches
//     anonymous, MADV_HUGEPAGE         7.0 or 142             0.1    142: pages the hypervisor has to supply first
//     memfd                                 47.7              9.2
//     memfd, MADV_HUGEPAGE                  47.7              9.2    the usual shmem setting ignores the advice
//     memfd, MADV_POPULATE_WRITE            36.0             11.3
//
// Huge pages are thus left to the host's own setting; large allocations are aligned so that "always" can use them.
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
  // May fail when a hole would take the process over vm.max_map_count mappings. The pages are gone, and the range is
  // usable again as it is; only a kernel that uses it after the free goes unnoticed.
  mprotect(pointer(kernelAddress), size, PROT_NONE);
  return true;
}

bool mapShared(uintptr_t devAddress, size_t size, int fd) {
  return mapFixed(windows.toKernel(devAddress), size, fd);
}

bool setHostAccess(uintptr_t devAddress, size_t size, int fd, bool accessible) {
  return accessible ? mapFixed(devAddress, size, fd) : reserveFixed(devAddress, size);
}

bool setWritable(uintptr_t devAddress, size_t size, bool writable) {
  return mprotect(pointer(windows.toKernel(devAddress)), size, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

} // namespace openreg

using namespace openreg;

void* orGetKernelPointer(const void* devPtr) {
  return pointer(windows.toKernel(reinterpret_cast<uintptr_t>(devPtr)));
}

void* orGetDevicePointer(const void* kernelPtr) {
  return pointer(windows.toDevice(reinterpret_cast<uintptr_t>(kernelPtr)));
}
