#pragma once

#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <vector>

#include "OpenRegFunctions.h"

// LITERALINCLUDE START: SHARING RULES
// Storages that several processes use: what torch.multiprocessing sends through its queues, in CUDA's way.
//
// Rule: a block may not be handed out again while another process uses it. So each message, which is a storage that is
// sent once, has a slot in shared memory, which says who uses the memory:
//
//     in flight, with the message's number -> opened, by a process (its id and start time) -> released (0)
//
// The receiver takes the message with a compare-and-swap from "in flight, with this number". So a message can be opened
// once, and one that comes too late, after its memory was given up, is refused instead of showing other data. What the
// sender frees while a message is in flight or opened waits in limbo.
//
// A process that was killed releases nothing. Its slots count as released, because no process with that id and start time
// runs any more. A message that nobody has opened is given up when no process is left that could open it. That is a
// judgement, which the sender makes only in an explicit torch.openreg.ipc_collect().
//
// The slots lie in device memory, which is shared as the storages are.
// LITERALINCLUDE END: SHARING RULES
namespace c10::openreg {

using Processes = std::vector<int64_t>;

// LITERALINCLUDE START: SHARED STORAGE
struct SharedStorage {
  int64_t device = -1;
  std::string memory;  // orIpcMemHandle_t of the allocation that the storage lies in; empty for a storage of 0 bytes
  size_t offset = 0;   // of the storage in it
  size_t size = 0;     // bytes
  std::string slots;   // orIpcMemHandle_t of the memory that the slot lies in
  size_t slot = 0;     // its index
  uint64_t number = 0; // of the message
};
// LITERALINCLUDE END: SHARED STORAGE

// Makes `storage` available to another process, once. Waits for the current stream: the receiver may use the bytes at
// once. `receivers` are the processes that could open it; nullopt: nobody knows, so the message is never given up.
OPENREG_API SharedStorage share_storage(const Storage& storage, std::optional<Processes> receivers);

// The same bytes in this process. The result cannot be resized, nor sent further. Throws, and changes nothing, if
// `shared` is damaged, was opened before or comes too late.
OPENREG_API Storage open_storage(const SharedStorage& shared);

// Lets go of what was received and is not needed, because the same storage is open already. Throws as open_storage().
OPENREG_API void release_storage(const SharedStorage& shared);

// Frees what other processes have let go of meanwhile, or used until they ended. `possible_receivers`: also what nobody
// has opened, if none of these processes, and none of share_storage()'s receivers, runs any more.
OPENREG_API void collect_shared(std::optional<Processes> possible_receivers = std::nullopt);

} // namespace c10::openreg
