#include <torch/library.h>

#include "simulator/borrowed/Fallback.h"
#include "simulator/borrowed/random/PhiloxGenerator.h"
#include "simulator/borrowed/routes/Route.h"

// Registers the operator by which native_dropout (aten/native/Dropout.h) draws the numbers of a GPU. The CPU has no
// kernel of it: without these numbers, the device has none either.
namespace at::openreg {
namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  if (draws_as_gpu) {
    m.impl("_fused_dropout", routed(torch::CppFunction::makeFromBoxedFunction<&run_boxed>(), "registered fallback"));
  }
}

} // namespace
} // namespace at::openreg
