#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "device.h"
#include "device_memory.h"
#include "error.h"
#include "runtime.h"
#include "scheduler.h"
#include "windows.h"

namespace openreg {
namespace {

// LITERALINCLUDE START: IPC HANDLE
// What a handle holds. The memory is a memfd of the process that allocated it, which others open through /proc; its
// inode tells whether that descriptor is still the same memory.
struct MemoryHandle {
  char magic[8];
  int32_t process;
  int32_t fd;
  uint64_t size; // bytes that were asked for
  uint64_t device, inode;
};
// LITERALINCLUDE END: IPC HANDLE

static_assert(sizeof(MemoryHandle) <= sizeof(orIpcMemHandle_t) && std::is_trivially_copyable_v<MemoryHandle>);

constexpr char kMagic[8] = "orIpcMm";

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
  if (orError_t error = deviceMemory(windows.deviceOf(address)).share(address, content.fd, content.size);
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
    return fail(orErrorInvalidValue, "the handle is none that orIpcGetMemHandle has filled in");
  }
  if (content.process == getpid()) {
    return fail(
        orErrorDeviceUninitialized,
        "the handle is of this process's own memory; it is for other processes, use the pointer here");
  }
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", content.process, content.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  const int reason = errno;
  struct stat status{};
  const bool same =
      fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == content.device && status.st_ino == content.inode;
  if (!same) {
    if (fd >= 0) {
      close(fd);
    }
    if (fd < 0 && reason != ENOENT) {
      return fail(
          orErrorInvalidResourceHandle,
          "cannot open the memory of process %d: %s. Both processes must run as the same user and see the same /proc, "
          "and this one must be allowed to open files (ulimit -n)",
          content.process,
          std::strerror(reason));
    }
    return fail(
        orErrorInvalidResourceHandle,
        "the memory is gone: process %d, which shared it, has freed it or has ended. It must keep the memory until it "
        "is "
        "opened",
        content.process);
  }
  return deviceMemory(currentDevice()).attach(fd, content.inode, content.size, devPtr); // takes the descriptor
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* devPtr) {
  return deviceCall(__func__, [&] { return getHandle(handle, devPtr); });
}

orError_t orIpcOpenMemHandle(void** devPtr, orIpcMemHandle_t handle, unsigned int flags) {
  return deviceCall(__func__, [&] { return openHandle(devPtr, handle, flags); });
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
    return deviceMemory(windows.deviceOf(address)).detach(address);
  });
}
