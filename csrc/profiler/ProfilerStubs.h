#pragma once

#include <torch/csrc/profiler/stubs/base.h>

namespace c10::openreg {

// See torch/csrc/profiler/stubs/base.h. Registered with PyTorch.
torch::profiler::impl::ProfilerStubs* profiler_stubs();

} // namespace c10::openreg
