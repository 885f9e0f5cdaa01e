#pragma once

#include <ATen/core/Generator.h>

#include "runtime/OpenRegException.h"

namespace c10::openreg {

// Makes a generator of the CPU's type from which the kernels of `device` draw. It has an offset.
using EngineFactory = at::Generator (*)(DeviceIndex device);

// Sets how the device's generators get their numbers (OpenRegGenerator.h). Without such a function, they have the CPU's,
// and no offset. Must be called while the library loads.
OPENREG_API void set_engine_factory(EngineFactory make);

} // namespace c10::openreg
