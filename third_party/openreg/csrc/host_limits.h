#pragma once

#include <cstddef>

#include "openreg.h"

// Checks whether the host has the memory that device memory and pinned memory need.
namespace openreg {

// To be called before `bytes` of device or pinned memory are granted. Adds them to the count of granted bytes.
//
// Linux commits memory when it is first touched. If the host then has none left, the OOM killer ends a process. So this
// function checks beforehand whether the host and the cgroup can back all memory that was granted. If they cannot, it
// returns orErrorMemoryAllocation with a message that names the limit, and counts nothing. The check is a forecast and
// no guarantee. Because the check reads files, most calls skip it: after a check that succeeded, the next one is made
// when 64 MiB more were asked for, or an eighth of the memory that was left, whichever is more.
orError_t chargeHostMemory(size_t bytes);
void unchargeHostMemory(size_t bytes);

} // namespace openreg
