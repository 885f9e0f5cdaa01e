#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>

#include "OpenRegFunctions.h"

// Tells observers that the host has waited for the device where no call of the device's API shows it: in an operator whose
// result the host reads, and in a blocking copy. With CUDA the host synchronises with the stream there.
namespace c10::openreg {

// Whether an observer wants to be told.
inline bool wait_is_told() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default ||
         orIsObserved(orActivitySynchronization) || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Tells PyTorch's tracer and the device's observers that the host has waited for all work of `stream`, including a kernel
// that this thread has begun.
void tell_wait(orStream_t stream);

} // namespace c10::openreg
