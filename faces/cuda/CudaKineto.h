#pragma once

#include <libkineto.h>

#include <memory>

// Kineto, PyTorch's profiler library, takes plugins for any device. PyTorch gives Kineto the plugins of PrivateUse1
// devices. For a device of type cuda, a CPU build of PyTorch does not do this, so this macro gives Kineto the plugin.
#define REGISTER_CUDA_PROFILER(PROFILER)                                                   \
  static const bool is_registered_##PROFILER = [] {                                        \
    libkineto::api().registerProfilerFactory([] { return std::make_unique<PROFILER>(); }); \
    return true;                                                                           \
  }()
