#pragma once

#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/OpenRegFunctions.h"

// LITERALINCLUDE START: SHARING RULES
// Storages that several processes use, as torch.multiprocessing sends them through its queues. This works as CUDA's
// IPC.
//
// Rule: the allocator must not reuse a block while another process uses it. Each time that a storage is sent, a new
// message is made. Each message has a slot in shared memory that says who uses the storage's memory:
//
//     in flight, with the message's number -> opened, by a process (its id and start time) -> released (0)
//
// The receiver opens the message with a compare-and-swap on the slot. The swap fails unless the slot says "in flight,
// with this number". So a message can be opened only once. If the sender has given the message up before the receiver
// opens it, open_storage() throws: the memory may hold other data by then. If the sender frees the storage while the
// message is in flight or opened, the memory stays in the sender's list `limbo` until no other process uses it.
//
// A process that was killed cannot release its slots. They count as released as soon as no process with that id and
// start time runs. A message that nobody has opened is given up if the sender has freed the storage, and no process is
// left that could open the message. Only a call of torch.openreg.ipc_collect() looks for such messages.
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

// Makes a message of `storage`, which one other process may open; a message of 0 bytes has no slot. Waits for the
// current stream, so that the receiver can use the bytes at once. `receivers` are the processes that could open the
// message; nullopt means that they are not known, and the message is never given up.
OPENREG_API SharedStorage share_storage(const Storage& storage, std::optional<Processes> receivers);

// Opens a message: returns a storage over the same bytes. This storage can neither be resized nor be sent to a process,
// unless it has 0 bytes. Throws, and leaves the message as it was, if `shared` is damaged, was opened before, or was
// given up.
OPENREG_API Storage open_storage(const SharedStorage& shared);

// Releases a message without opening it, because this process has the same storage open already. Throws if the message
// has 0 bytes, if its slot is damaged, or if the message was opened before or was given up.
OPENREG_API void release_storage(const SharedStorage& shared);

// Frees the memory in limbo that no other process uses any more. If `possible_receivers` is given, first gives up those
// messages for memory in limbo that nobody can open: nobody has opened the message so far, and none of the receivers
// that share_storage() got runs any more, nor any of `possible_receivers`. These are the processes that could open
// messages now. They may include a receiver that share_storage() did not get, because the receiver was being started
// then and had no id yet.
OPENREG_API void collect_shared(std::optional<Processes> possible_receivers = std::nullopt);

} // namespace c10::openreg
