#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"

namespace c10d::openreg {

// From now on, no other process takes part in the collectives of this process, whatever the size of a group: dry
// execution answers them. Lasts until the process ends. `ranks_of_host`: so many ranks of the world share a host.
OPENREG_API void start_dry_world(int ranks_of_host);

// The ranks that the next group has, as ranks of the world. Without this call they are 0, 1, 2 and so on.
OPENREG_API void set_ranks_of_next_group(std::vector<int> ranks);

// From now on, the first collective of each group on a device takes `communicator` bytes of the device, as a communicator
// of NCCL does. The first all_to_all takes `exchange` bytes for each other rank of the host. 0, the default: none. The
// memory belongs to no tensor, and is never freed.
OPENREG_API void set_communicator_memory(size_t communicator, size_t exchange);

struct CommunicatorMemory {
  size_t groups = 0;
  size_t bytes = 0;
};
OPENREG_API std::map<int, CommunicatorMemory> communicator_memory(); // of each device

// The first group that did not get its memory, also if the program caught the error.
struct RefusedCommunicator {
  std::string line; // of Python
  int device;
  size_t size;
  size_t free;
};
OPENREG_API std::optional<RefusedCommunicator> refused_communicator();

} // namespace c10d::openreg
