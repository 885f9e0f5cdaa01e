#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

// Pinned host memory (orMallocHost, orHostRegister): memory of the host that kernels use through the same address.
namespace openreg {

struct PinnedAllocation {
  uintptr_t begin;
  size_t size;             // bytes that the caller asked for
  int device;              // the device that was current in orMallocHost or orHostRegister
  bool registered = false; // by orHostRegister: the program owns the memory
  bool shared = false;     // moved to a memfd before a fork(), so that the child shares the memory
};

// The pinned allocation that contains `address`.
std::optional<PinnedAllocation> findPinned(uintptr_t address);

// Whether there is no pinned memory, and never was.
bool isNothingPinned();

// Whether there is memory of orMallocHost.
bool hasPinnedMemory();

// For a signal handler: whether orMallocHost returned the memory at `address`. Returns true also if another thread holds
// the lock of the allocations.
bool mayBePinned(uintptr_t address);

// From this call on, fork() moves the memory of orMallocHost to memory that the child shares. To be called once, before
// installSegfaultHandler().
void sharePinnedMemoryAtFork();

} // namespace openreg
