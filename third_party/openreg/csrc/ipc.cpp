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
#include "graph.h"
#include "hooks.h"
#include "ipc.h"
#include "memfd.h"
#include "runtime.h"
#include "scheduler.h"
#include "windows.h"

// Device memory that several processes share: makes, opens and closes the handles of openreg.h (orIpcGetMemHandle).
namespace openreg {
namespace {

static_assert(sizeof(IpcHandle) <= sizeof(orIpcMemHandle_t) && std::is_trivially_copyable_v<IpcHandle>);

constexpr char kMemoryMagic[8] = "ipcMemH";
constexpr IpcKind kMemory{kMemoryMagic, "orIpcGetMemHandle", "memory", "use the pointer here"};

orError_t getHandle(orIpcMemHandle_t* handle, void* devPtr) {
  const auto address = reinterpret_cast<uintptr_t>(devPtr);
  if (handle == nullptr) {
    return fail(orErrorInvalidValue, "handle is NULL; pass the address of an orIpcMemHandle_t");
  }
  if (!windows.containsDevice(address)) {
    return fail(orErrorInvalidValue, "%p is not device memory; pass the pointer that orMalloc returned", devPtr);
  }
  int fd = -1;
  uint64_t size = 0;
  if (orError_t error = deviceMemory(windows.deviceOf(address)).makeShareable(address, fd, size); error != orSuccess) {
    return error;
  }
  if (orIsObserved(orActivityUse)) {
    tellRange(orActivityUse, windows.deviceOf(address), nullptr, "orIpcGetMemHandle", devPtr, size);
  }
  const IpcHandle content = describeMemfd(kMemoryMagic, fd, size);
  *handle = {};
  std::memcpy(handle, &content, sizeof(content));
  return orSuccess;
}

// Opens the memfd of a handle. Returns -1 with errno after a failure: ENOENT if it is not the memory that the handle
// describes.
int tryOpenMemfd(const IpcHandle& handle) {
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
  IpcHandle content;
  std::memcpy(&content, &handle, sizeof(content));
  int fd = -1;
  if (orError_t error = openMemfd(content, kMemory, fd); error != orSuccess) {
    return error;
  }
  return deviceMemory(currentDevice()).attach(fd, content.inode, content.size, devPtr); // owns `fd` from here on
}

} // namespace

IpcHandle describeMemfd(const char (&magic)[8], int fd, uint64_t size) {
  struct stat status{};
  fstat(fd, &status);
  IpcHandle handle{{}, getpid(), fd, size, status.st_dev, status.st_ino};
  std::memcpy(handle.magic, magic, sizeof(magic));
  return handle;
}

orError_t openMemfd(const IpcHandle& handle, const IpcKind& kind, int& fd) {
  if (std::memcmp(handle.magic, kind.magic, sizeof(kind.magic)) != 0) {
    return fail(orErrorInvalidResourceHandle, "the handle is none that %s has filled in", kind.maker);
  }
  if (handle.process == getpid()) {
    return fail(
        orErrorDeviceUninitialized,
        "the handle is of this process's own %s; it is for other processes, %s",
        kind.thing,
        kind.advice);
  }
  fd = tryOpenMemfd(handle);
  if (fd >= 0) {
    return orSuccess;
  }
  if (errno != ENOENT) {
    return fail(
        orErrorInvalidResourceHandle,
        "cannot open the %s of process %d: %s. Both processes must run as the same user and see the same /proc, and "
        "this one must be allowed to open files (ulimit -n)",
        kind.thing,
        handle.process,
        std::strerror(errno));
  }
  return fail(
      orErrorInvalidResourceHandle,
      "process %d has no such %s: it has freed the %s or has ended, or the handle is damaged. A process must keep what "
      "it shares until it is opened",
      handle.process,
      kind.thing,
      kind.thing);
}

} // namespace openreg

using namespace openreg;

orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* devPtr) {
  return deviceCall(__func__, [&] { return getHandle(handle, devPtr); });
}

orError_t orIpcOpenMemHandle(void** devPtr, orIpcMemHandle_t handle, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (orError_t error = mayCallUnsafe(); error != orSuccess) {
      return error;
    }
    const orError_t error = checkCall(kAtIpc, currentDevice());
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
    DeviceMemory& memory = deviceMemory(windows.deviceOf(address));
    if (const auto found = memory.find(address); found && found->begin == address && found->openCount > 0) {
      // This comes first: when the memory is detached, another thread may get the same address at once.
      noteHandle(orActivityEnd, "orIpcCloseMemHandle", devPtr);
    }
    return memory.detach(address); // which returns the error for any other address
  });
}
