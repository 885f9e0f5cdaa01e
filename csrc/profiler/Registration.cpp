#define USE_KINETO // PyTorch's header declares REGISTER_PRIVATEUSE1_PROFILER only with this macro
#include "profiler/Kineto.h"
#include "profiler/ProfilerStubs.h"

#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

// Gives PyTorch's profilers their access to the device.
namespace c10::openreg {
namespace {

REGISTER_PRIVATEUSE1_PROFILER(OpenRegProfiler);

const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(profiler_stubs());
  return true;
}();

} // namespace
} // namespace c10::openreg
