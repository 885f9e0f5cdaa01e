#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "activity.h"
#include "device.h"
#include "device_memory.h"
#include "error.h"
#include "injection.h"
#include "memfd.h"
#include "runtime.h"
#include "scheduler.h"
#include "windows.h"

// Device memory that several processes share: makes, opens and closes the handles of openreg.h (orIpcGetMemHandle).
namespace openreg {
namespace {

// LITERALINCLUDE START: IPC HANDLE
// The content of a handle. The memory is a memfd of the process that allocated it, and other processes open the memfd
// through /proc.
//
// Rule: a handle comes from outside and is not trusted. Before the descriptor is opened, /proc must say that it is a
// memfd of this library. The inode must be that of the handle: otherwise it is other memory. The size must be that of
// the handle, and the seals promise that it never changes: if memory shrank while it is mapped, SIGBUS would end the
// reader.
struct MemoryHandle {
  char magic[8];
  int32_t process;
  int32_t fd;
  uint64_t size; // the bytes that orMalloc was asked for
  uint64_t device, inode;
};
// LITERALINCLUDE END: IPC HANDLE

static_assert(sizeof(MemoryHandle) <= sizeof(orIpcMemHandle_t) && std::is_trivially_copyable_v<MemoryHandle>);

constexpr char kMagic[8] = "ipcMemH";

orError_t getHandle(orIpcMemHandle_t* handle, void* devPtr) {
  const auto address = reinterpret_cast<uintptr_t>(devPtr);
  if (handle == nullptr) {
    return fail(orErrorInvalidValue, "handle is NULL; pass the address of an orIpcMemHandle_t");
  }
  if (!windows.containsDevice(address)) {
    return fail(orErrorInvalidValue, "%p is not device memory; pass the pointer that orMalloc returned", devPtr);
  }
  MemoryHandle content{};
  std::memcpy(content.magic, kMagic, sizeof(kMagic));
  content.process = getpid();
  if (orError_t error = deviceMemory(windows.deviceOf(address)).makeShareable(address, content.fd, content.size);
      error != orSuccess) {
    return error;
  }
  struct stat status{};
  fstat(content.fd, &status);
  content.device = status.st_dev;
  content.inode = status.st_ino;
  *handle = {};
  std::memcpy(handle, &content, sizeof(content));
  return orSuccess;
}

// Opens the memfd of a handle. Returns -1 with errno after a failure: ENOENT if it is not the memory that the handle
// describes.
int openMemfd(const MemoryHandle& handle) {
  char path[64], name[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.process, handle.fd);
  const ssize_t length = readlink(path, name, sizeof(name));
  if (length < 0) {
    return -1;
  }
  errno = ENOENT;
  if (std::string_view(name, length) != kMemfdLink) { // checked before open(), which has side effects on some files
    return -1;
  }
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return -1;
  }
  struct stat status{};
  const int seals = fcntl(fd, F_GET_SEALS); // -1 for a file that is no memfd
  if (seals >= 0 && (seals & kMemfdSeals) == kMemfdSeals && fstat(fd, &status) == 0 && status.st_dev == handle.device &&
      status.st_ino == handle.inode && handle.size > 0 &&
      handle.size <= static_cast<uint64_t>(status.st_size) && // first, because the rounding below may overflow
      roundUp(handle.size, kPageSize) == static_cast<uint64_t>(status.st_size)) {
    return fd;
  }
  close(fd);
  errno = ENOENT;
  return -1;
}

orError_t openHandle(void** devPtr, const orIpcMemHandle_t& handle, unsigned int flags) {
  if (devPtr == nullptr) {
    return fail(orErrorInvalidValue, "devPtr is NULL; pass the address of a pointer");
  }
  *devPtr = nullptr;
  if (flags != 0) {
    return fail(orErrorInvalidValue, "flags is %u; no flag exists, pass 0", flags);
  }
  MemoryHandle content;
  std::memcpy(&content, &handle, sizeof(content));
  if (std::memcmp(content.magic, kMagic, sizeof(kMagic)) != 0) {
    return fail(orErrorInvalidResourceHandle, "the handle is none that orIpcGetMemHandle has filled in");
  }
  if (content.process == getpid()) {
    return fail(
        orErrorDeviceUninitialized,
        "the handle is of this process's own memory; it is for other processes, use the pointer here");
  }
  const int fd = openMemfd(content);
  if (fd < 0) {
    if (errno != ENOENT) {
      return fail(
          orErrorInvalidResourceHandle,
          "cannot open the memory of process %d: %s. Both processes must run as the same user and see the same /proc, "
          "and this one must be allowed to open files (ulimit -n)",
          content.process,
          std::strerror(errno));
    }
    return fail(
        orErrorInvalidResourceHandle,
        "process %d has no such memory: it has freed the memory or has ended, or the handle is damaged. A process must "
        "keep what it shares until it is opened",
        content.process);
  }
  return deviceMemory(currentDevice()).attach(fd, content.inode, content.size, devPtr); // owns `fd` from here on
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* devPtr) {
  return deviceCall(__func__, [&] { return getHandle(handle, devPtr); });
}

orError_t orIpcOpenMemHandle(void** devPtr, orIpcMemHandle_t handle, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    const orError_t error = checkFaults(orFaultAtIpc, currentDevice());
    const orError_t opened = error == orSuccess ? openHandle(devPtr, handle, flags) : error;
    if (opened == orSuccess) {
      noteHandle(orActivityBegin, "orIpcOpenMemHandle", *devPtr);
    }
    return opened;
  });
}

orError_t orIpcCloseMemHandle(void* devPtr) {
  return releaseCall(__func__, [&]() -> orError_t {
    const auto address = reinterpret_cast<uintptr_t>(devPtr);
    if (!windows.containsDevice(address)) {
      return fail(
          orErrorInvalidValue, "%p is not device memory; pass the pointer that orIpcOpenMemHandle returned", devPtr);
    }
    if (orError_t error = waitForAllDevices(); error != orSuccess) {
      return error;
    }
    noteHandle(orActivityEnd, "orIpcCloseMemHandle", devPtr);
    return deviceMemory(windows.deviceOf(address)).detach(address);
  });
}
