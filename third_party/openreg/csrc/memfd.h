#pragma once

#include <fcntl.h>

#include <cstddef>

// Files without a name (memfd). Such a file holds device memory that another process, or the host, also maps, or the
// page of an event that several processes share.
namespace openreg {

// kMemfdLink: how /proc shows the descriptor of such a file. kMemfdSeals: the seals of such a file, which fix its size.
constexpr char kMemfdLink[] = "/memfd:openreg (deleted)";
constexpr int kMemfdSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Makes a file of `size` bytes, and returns its descriptor. Returns -1, with errno, after a failure.
int createMemfd(size_t size);

// Copies `size` bytes, a multiple of kPageSize, to the file. Returns false, with errno, after a failure.
//
// Pages of zeros are left out: memory that was never touched stays uncommitted. The bytes go through pwrite(), not
// through a mapping, so a lack of memory is an error and not SIGBUS.
bool copyToFile(int fd, const char* source, size_t size);

} // namespace openreg
