#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "runtime/OpenRegException.h"

// How a graph learns of a generator that takes part in its capture.
namespace c10::openreg {

// Since PyTorch 2.14, a generator takes part in a capture from its first kernel on. `registrar` adds the generator's
// state to the graph that captures. It is called under a lock of the generator.
using CaptureRegistrar = void (*)(uint64_t capture, at::Generator state);
OPENREG_API void set_capture_registrar(CaptureRegistrar registrar);

} // namespace c10::openreg
