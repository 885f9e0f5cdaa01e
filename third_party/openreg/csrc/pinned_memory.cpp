#include "pinned_memory.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>

#include "activity.h"
#include "allocation_map.h"
#include "device.h"
#include "error.h"
#include "graph.h"
#include "hooks.h"
#include "host_limits.h"
#include "memfd.h"
#include "runtime.h"
#include "scheduler.h"
#include "windows.h"

namespace openreg {
namespace {

// Never deleted: atexit handlers and destructors of other libraries may still free memory.
struct PinnedMemory {
  std::mutex mutex;
  AllocationMap<PinnedAllocation> allocations;
};

PinnedMemory& pinned() {
  static PinnedMemory* const memory = new PinnedMemory();
  return *memory;
}

std::atomic<bool> nothingPinned{true};

orError_t allocate(size_t size, void** ptr) {
  if (size > std::numeric_limits<size_t>::max() / 2) { // after this check, the rounding below cannot overflow
    return fail(orErrorMemoryAllocation, "cannot allocate %s of host memory", formatBytes(size).c_str());
  }
  const size_t reserved = roundUp(size, kPageSize);
  if (orError_t error = chargeHostMemory(reserved); error != orSuccess) {
    return error;
  }
  void* const memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    unchargeHostMemory(reserved);
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    return fail(
        orErrorMemoryAllocation,
        "cannot allocate %s of host memory: %s; RLIMIT_AS (ulimit -v) is %s. Free memory or raise the limit; a lower "
        "OPENREG_DEVICE_MEMORY leaves more address space",
        formatBytes(size).c_str(),
        std::strerror(reason),
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : formatBytes(limit.rlim_cur).c_str());
  }
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(pinned().mutex);
  nothingPinned = false;
  pinned().allocations.emplace(begin, PinnedAllocation{begin, size, currentDevice()});
  *ptr = memory;
  return orSuccess;
}

// Waits for all work of all devices, because any of it may use the memory. Then moves the entry that begins at `ptr`
// from the map to `node`. If `registered` is true, only an entry of orHostRegister is moved; otherwise, only an entry
// of orMallocHost. `node` stays empty if there is no such entry.
orError_t remove(const void* ptr, bool registered, AllocationMap<PinnedAllocation>::node_type& node) {
  if (orError_t error = waitForAllDevices(); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(pinned().mutex);
  const auto found = pinned().allocations.find(reinterpret_cast<uintptr_t>(ptr));
  if (found != pinned().allocations.end() && found->second.registered == registered) {
    node = pinned().allocations.extract(found);
  }
  return orSuccess;
}

// Called before fork(). As with CUDA, parent and child then write to the same pinned memory. Memory that is shared from
// the start would be mapped here too, but costs each program: 64 MiB take 40 % longer to write for the first time, and
// 150 % longer to free (the table in windows.cpp). Now only programs that fork pay, once for each block.
void sharePinnedMemory() {
  if (isInBadFork()) { // the lock may be taken, and what the child inherited is shared already
    return;
  }
  const KeptError kept;
  enter("fork");
  const std::lock_guard lock(pinned().mutex);
  for (auto& [begin, allocation] : pinned().allocations) {
    if (allocation.registered || allocation.shared) {
      continue;
    }
    const size_t reserved = roundUp(allocation.size, kPageSize);
    int fd = -1;
    if (moveToMemfd("pinned memory", reinterpret_cast<void*>(begin), reserved, MADV_DOFORK, fd) != orSuccess) {
      std::fprintf(stderr, "openreg: %s. The child gets a copy of this memory.\n", orGetLastErrorMessage());
      continue;
    }
    close(fd); // the mapping keeps the file
    allocation.shared = true;
    unchargeHostMemory(reserved); // the pages of a file are not resident memory (residentBytes)
  }
}

} // namespace

std::optional<PinnedAllocation> findPinned(uintptr_t address) {
  const std::lock_guard lock(pinned().mutex);
  const PinnedAllocation* const found = findContaining(pinned().allocations, address);
  return found ? std::optional(*found) : std::nullopt;
}

bool isNothingPinned() {
  return nothingPinned;
}

bool hasPinnedMemory() {
  const std::lock_guard lock(pinned().mutex);
  return std::any_of(pinned().allocations.begin(), pinned().allocations.end(), [](const auto& each) {
    return !each.second.registered;
  });
}

bool mayBePinned(uintptr_t address) {
  if (isInBadFork()) { // the lock may be taken for ever
    return false;
  }
  const std::unique_lock lock(pinned().mutex, std::try_to_lock);
  if (!lock) {
    sched_yield();
    return true;
  }
  const PinnedAllocation* const found = findContaining(pinned().allocations, address);
  return found && !found->registered;
}

void sharePinnedMemoryAtFork() {
  pinned(); // a signal handler must not make the object
  pthread_atfork(&sharePinnedMemory, nullptr, nullptr);
}

} // namespace openreg

using namespace openreg;

orError_t orMallocHost(void** ptr, size_t size) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (ptr == nullptr) {
      return fail(orErrorInvalidValue, "ptr is NULL; pass the address of a pointer");
    }
    *ptr = nullptr;
    if (orError_t error = checkCall(kAtHostAllocation, currentDevice(), size); error != orSuccess) {
      return error;
    }
    if (size == 0) {
      return orSuccess;
    }
    if (orError_t error = mayCallUnsafe(); error != orSuccess) {
      return error;
    }
    const ObservedCall call(orActivityCall, "orMallocHost", currentDevice());
    const orError_t error = allocate(size, ptr);
    if (error == orSuccess) {
      noteHandle(orActivityBegin, "orMallocHost", *ptr, size);
    }
    return error;
  });
}

orError_t orFreeHost(void* ptr) {
  return releaseCall(__func__, [&]() -> orError_t {
    if (ptr == nullptr) {
      return orSuccess;
    }
    const ObservedCall call(orActivityCall, "orFreeHost", currentDevice());
    AllocationMap<PinnedAllocation>::node_type node;
    if (orError_t error = remove(ptr, /*registered=*/false, node); error != orSuccess) {
      return error;
    }
    if (!node) {
      return fail(
          orErrorInvalidValue,
          "%p is not the start of an allocation of pinned memory: it was freed before, or orMallocHost did not return "
          "it",
          ptr);
    }
    noteHandle(orActivityEnd, "orFreeHost", ptr, node.mapped().size);
    const size_t reserved = roundUp(node.mapped().size, kPageSize);
    munmap(ptr, reserved);
    if (!node.mapped().shared) {
      unchargeHostMemory(reserved);
    }
    return orSuccess;
  });
}

orError_t orHostRegister(void* ptr, size_t size) {
  return deviceCall(__func__, [&]() -> orError_t {
    const auto begin = reinterpret_cast<uintptr_t>(ptr);
    if (ptr == nullptr || size == 0 || size - 1 > std::numeric_limits<uintptr_t>::max() - begin) {
      return fail(orErrorInvalidValue, "%p with %zu bytes is no range of memory", ptr, size);
    }
    if (windows.containsDevice(begin)) {
      return fail(orErrorInvalidValue, "%p is device memory; only memory of the host can be registered", ptr);
    }
    if (orError_t error = mayCallUnsafe(); error != orSuccess) {
      return error;
    }
    const std::lock_guard lock(pinned().mutex);
    const PinnedAllocation* const before = findBefore(pinned().allocations, begin + (size - 1));
    if (before && before->begin + before->size > begin) {
      return fail(
          orErrorHostMemoryAlreadyRegistered,
          "the %zu bytes at %p overlap pinned memory: %zu bytes at %p",
          size,
          ptr,
          before->size,
          reinterpret_cast<void*>(before->begin));
    }
    nothingPinned = false;
    pinned().allocations.emplace(begin, PinnedAllocation{begin, size, currentDevice(), /*registered=*/true});
    return orSuccess;
  });
}

orError_t orHostUnregister(void* ptr) {
  return releaseCall(__func__, [&]() -> orError_t {
    AllocationMap<PinnedAllocation>::node_type node;
    if (orError_t error = remove(ptr, /*registered=*/true, node); error != orSuccess) {
      return error;
    }
    return node ? orSuccess : fail(orErrorHostMemoryNotRegistered, "%p is not the start of registered memory", ptr);
  });
}
