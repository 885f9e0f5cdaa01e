#pragma once

#include <cstddef>

#include "openreg.h"

namespace openreg {

// Counts `bytes` of device or pinned memory about to be granted. Memory is committed when it is first touched, and then
// a host without memory has no answer but the OOM killer: so this asks beforehand whether the host and the cgroup can
// still back everything granted. If not: orErrorMemoryAllocation, naming the limit, and nothing is counted. It is a
// forecast, not a guarantee. Reads files only every so many bytes granted.
orError_t chargeHostMemory(size_t bytes);
void unchargeHostMemory(size_t bytes);

} // namespace openreg
