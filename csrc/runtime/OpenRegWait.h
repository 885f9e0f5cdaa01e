#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>

#include "runtime/OpenRegFunctions.h"

// Tells observers about waits of the host that no call of the device's API shows: in an operator whose result the host
// reads, and in a blocking copy. With CUDA the host synchronises with the stream in these places.
namespace c10::openreg {

// Whether anybody wants to be told about waits: an observer, PyTorch's tracer, or the sync debug mode.
inline bool wait_is_told() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default ||
         orIsObserved(orActivitySynchronization) || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Tells PyTorch's tracer and the device's observers that the host has waited for all work of `stream`, including a
// kernel that this thread has begun.
void tell_wait(orStream_t stream);

} // namespace c10::openreg
