#pragma once

#include <cstdint>

#include "openreg.h"
#include "openreg_activity.h"

namespace openreg {

// Tell the subscribers. To be asked before: orIsObserved(). tellBegin() returns the activity's number, tellEnd() takes it.
uint64_t tellBegin(orActivityKind kind, int device, orStream_t stream, const orKernel& what);
void tellEnd(orActivityKind kind, int device, orStream_t stream, const orKernel& what, uint64_t id, bool failed);
void tellRange(orActivityKind kind, int device, orStream_t stream, const char* name, const void* data, size_t size);

// The faults at the points of kernels, copies, fills and allocations have changed.
void updateObservedKinds();

} // namespace openreg
