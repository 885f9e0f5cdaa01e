#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>

#include "runtime/OpenRegFunctions.h"

// Waits of the host that no call of the device's API shows: in an operator whose result the host reads, and in a
// blocking copy. With CUDA the host synchronises with the stream in these places.
namespace c10::openreg {

// Whether anybody observes waits: a subscriber of openreg_activity.h, PyTorch's tracer, or the sync debug mode.
inline bool wait_is_observed() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default ||
         orIsObserved(orActivitySynchronization) || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Notifies the tracer and the subscribers that the host has waited for all work of `stream`, including a kernel that
// this thread has begun.
void notify_wait(orStream_t stream);

} // namespace c10::openreg
