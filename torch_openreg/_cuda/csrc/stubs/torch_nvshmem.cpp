// The function of libtorch_nvshmem.so for which a process without NVSHMEM has an answer.
#include "stubs/Stubs.h"

#pragma GCC visibility push(default)
namespace c10d::nvshmem_extension {

bool is_nvshmem_available() {
  return false;
}

} // namespace c10d::nvshmem_extension
#pragma GCC visibility pop
