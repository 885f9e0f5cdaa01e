#pragma once

#include "runtime/OpenRegException.h"

namespace c10::openreg {

// Lets the simulator observe the runtime (OpenRegObserver.h) until the process ends. To be called before a tool is used
// that needs it: the sanitizer, faults, and the restrictions of a device model. Poisoned memory calls it by itself.
OPENREG_API void observe_runtime();

} // namespace c10::openreg
