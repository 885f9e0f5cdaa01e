#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>

#include "OpenRegFunctions.h"

// The waits of the host that no call of the device's API shows: an operator whose result the host reads, a copy that
// blocks. CUDA's kernels wait for the stream there.
namespace c10::openreg {

// Whether anybody wants to know.
inline bool wait_is_told() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default ||
         orIsObserved(orActivitySynchronization) || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Tells PyTorch's tracer and the device's observers that the host has waited for all work of the stream, that of a kernel
// which this thread has begun included.
void tell_wait(orStream_t stream);

} // namespace c10::openreg
