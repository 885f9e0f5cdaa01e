#pragma once

#include <cstdint>

#include "openreg.h"

// The handles through which processes share a memfd: memory (ipc.cpp) and events (ipc_event.cpp).
namespace openreg {

// LITERALINCLUDE START: IPC HANDLE
// The content of a handle. The memory, or the page of an event, is a memfd of the process that made it, and other
// processes open the memfd through /proc.
//
// Rule: a handle comes from outside and is not trusted. Before the descriptor is opened, /proc must say that it is a
// memfd of this library. The inode must be that of the handle: otherwise it is another memfd. The size must be that of
// the handle, and the seals promise that it never changes: if memory shrank while it is mapped, SIGBUS would end the
// reader.
struct IpcHandle {
  char magic[8];
  int32_t process;
  int32_t fd;
  uint64_t size; // memory: the bytes that orMalloc was asked for; event: the bytes of its page
  uint64_t device, inode;
};
// LITERALINCLUDE END: IPC HANDLE

// Describes a memfd of this process.
IpcHandle describeMemfd(const char (&magic)[8], int fd, uint64_t size);

// What a handle is for, in the words of its error messages.
struct IpcKind {
  const char (&magic)[8];
  const char* maker;  // the function that makes such handles
  const char* thing;  // "memory" or "event"
  const char* advice; // such as "use the pointer here"
};

// Opens the memfd of another process's handle. Returns orSuccess, or the error that fail() has recorded.
orError_t openMemfd(const IpcHandle& handle, const IpcKind& kind, int& fd);

} // namespace openreg
