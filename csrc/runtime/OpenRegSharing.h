#pragma once

#include <c10/core/Storage.h>

#include <string>

#include "OpenRegFunctions.h"

// LITERALINCLUDE START: SHARING RULES
// Storages that several processes use: what torch.multiprocessing sends through its queues, in CUDA's way.
//
// Rule: a block may not be handed out again while another process uses it. So each time a storage is sent, a counter in
// shared memory is set to 1, which the receiver sets to 0 when its storage goes. What the sender frees before that
// waits in limbo. The counters lie in device memory, which is shared as the storages are.
// LITERALINCLUDE END: SHARING RULES
namespace c10::openreg {

// LITERALINCLUDE START: SHARED STORAGE
struct SharedStorage {
  DeviceIndex device = -1;
  std::string memory;   // orIpcMemHandle_t of the allocation that the storage lies in; empty for a storage of 0 bytes
  size_t offset = 0;    // of the storage in it
  size_t size = 0;      // bytes
  std::string counters; // orIpcMemHandle_t of the memory that the counter lies in
  size_t counter = 0;   // its index
};
// LITERALINCLUDE END: SHARED STORAGE

// Makes `storage` available to another process, once. Waits for the current stream: the receiver may use the bytes at
// once.
OPENREG_API SharedStorage share_storage(const Storage& storage);

// The same bytes in this process. The result cannot be resized, nor sent further.
OPENREG_API Storage open_storage(const SharedStorage& shared);

// Lets go of what was received and is not needed, because the same storage is open already.
OPENREG_API void release_storage(const SharedStorage& shared);

// Frees what other processes have let go of meanwhile.
OPENREG_API void collect_shared();

} // namespace c10::openreg
