#pragma once

#include <libkineto.h>

#include <memory>

// Kineto takes plugins for any device. PyTorch registers the plugins of its registry of PrivateUse1 profilers. A device
// of type cuda in a CPU build of PyTorch registers its plugin with Kineto itself.
#define REGISTER_CUDA_PROFILER(PROFILER)                                                   \
  static const bool is_registered_##PROFILER = [] {                                        \
    libkineto::api().registerProfilerFactory([] { return std::make_unique<PROFILER>(); }); \
    return true;                                                                           \
  }()
