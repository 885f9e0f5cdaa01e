#pragma once

#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <vector>

#include "OpenRegFunctions.h"

// LITERALINCLUDE START: SHARING RULES
// Storages that several processes use, as torch.multiprocessing sends them through its queues. Works as CUDA's IPC.
//
// Rule: the allocator must not reuse a block while another process uses it. A message is one storage that is sent once.
// Each message has a slot in shared memory that says who uses the storage's memory:
//
//     in flight, with the message's number -> opened, by a process (its id and start time) -> released (0)
//
// The receiver takes the message with a compare-and-swap of "in flight, with this number". So a message can be opened
// only once. A message that arrives after the sender has given its memory up is refused; it does not show other data.
// If the sender frees the storage while the message is in flight or opened, the memory waits in the sender's list
// `limbo`.
//
// A process that was killed cannot release its slots. They count as released as soon as no process with that id and
// start time runs. A message that nobody has opened is given up when no process is left that could open it. Only a call
// of torch.openreg.ipc_collect() looks for such messages.
//
// The slots lie in device memory, and are shared between processes as the storages are.
// LITERALINCLUDE END: SHARING RULES
namespace c10::openreg {

using Processes = std::vector<int64_t>;

// LITERALINCLUDE START: SHARED STORAGE
struct SharedStorage {
  int64_t device = -1;
  std::string memory;  // the orIpcMemHandle_t of the allocation that contains the storage; empty for 0 bytes
  size_t offset = 0;   // of the storage in the allocation, in bytes
  size_t size = 0;     // of the storage, in bytes
  std::string slots;   // the orIpcMemHandle_t of the memory that contains the slot
  size_t slot = 0;     // the index of the slot in that memory
  uint64_t number = 0; // of the message
};
// LITERALINCLUDE END: SHARED STORAGE

// Makes a message of `storage`, which one other process may open. Waits for the current stream, so that the receiver
// can use the bytes at once. `receivers` are the processes that could open the message; nullopt means that they are not
// known, and the message is never given up.
OPENREG_API SharedStorage share_storage(const Storage& storage, std::optional<Processes> receivers);

// Opens a message: returns a storage over the same bytes. It can neither be resized nor be sent to a third process.
// Throws, and leaves the message as it was, if `shared` is damaged, was opened before, or was given up.
OPENREG_API Storage open_storage(const SharedStorage& shared);

// Releases a message without opening it, because this process has the same storage open already. Throws for the reasons
// for which open_storage() throws.
OPENREG_API void release_storage(const SharedStorage& shared);

// Frees the memory in limbo that no other process uses any more. With `possible_receivers` also gives up the messages
// that nobody has opened, if none of these processes and none of share_storage()'s receivers runs any more.
OPENREG_API void collect_shared(std::optional<Processes> possible_receivers = std::nullopt);

} // namespace c10::openreg
