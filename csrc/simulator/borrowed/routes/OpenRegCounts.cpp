#include <torch/library.h>

#include "simulator/borrowed/routes/Histogram.h"
#include "simulator/borrowed/routes/Route.h"

// histc(). OpenRegFallback.cpp, which is linked later, registers a check for histc() only if it finds no kernel, so the
// kernels here call that check themselves.
namespace at::openreg {
namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histc", routed(torch::CppFunction(&Histogram<at::_ops::histc>::call), "registered fallback"));
  m.impl("histc.out", routed(torch::CppFunction(&Histogram<at::_ops::histc_out>::call), "registered fallback"));
}

} // namespace
} // namespace at::openreg
