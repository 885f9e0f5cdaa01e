#pragma once

#include <c10/core/Event.h>

#include "runtime/OpenRegGuard.h"

namespace c10::openreg {

// The guard of the runtime, and events that other processes can open. PyTorch knows these for the type cuda only.
struct CudaGuardImpl final : public OpenRegGuardImpl {
  void record(void** event, const Stream& stream, const DeviceIndex device, const EventFlag flag) const override;
};

// Gives `handle` to `event`, which has no handle yet, because it was never recorded. `event` then owns `handle`, and
// belongs to `device`. PyTorch has no such function: c10::Event asks the guard for a handle at its first record().
OPENREG_API void set_handle(Event& event, orEvent_t handle, DeviceIndex device);

} // namespace c10::openreg
