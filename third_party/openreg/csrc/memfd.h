#pragma once

#include <fcntl.h>

#include <cstddef>

#include "openreg.h"

// Files without a name (memfd). Such a file holds device memory that another process, or the host, also maps, pinned
// memory that a forked child shares, or the page of an event that several processes share.
namespace openreg {

// kMemfdLink: how /proc shows the descriptor of such a file. kMemfdSeals: the seals of such a file, which fix its size.
constexpr char kMemfdLink[] = "/memfd:openreg (deleted)";
constexpr int kMemfdSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Makes a file of `size` bytes, and returns its descriptor. Returns -1, with errno, after a failure.
int createMemfd(size_t size);

// Moves `size` bytes of anonymous memory, a multiple of kPageSize, to a new file that is mapped in their place, and
// gives the file's descriptor. `kind` names the memory in the message of a failure, after which the memory is as it
// was. `advice` says whether a forked child gets the mapping: MADV_DOFORK or MADV_DONTFORK.
//
// Other threads may use the memory meanwhile. Threads that read do not notice; threads that write wait until the move
// is done (HeldWriters), as they do when a driver migrates pages. Only a system call that writes to the memory is not
// held: it fails with EFAULT.
orError_t moveToMemfd(const char* kind, void* memory, size_t size, int advice, int& fd);

} // namespace openreg
