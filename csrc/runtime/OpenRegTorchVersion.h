#pragma once

#include <torch/headeronly/version.h>

// The one way to ask which version of PyTorch the code is compiled for: `git grep OPENREG_TORCH_AT_LEAST` finds every
// difference between the supported minor versions.
#define OPENREG_TORCH_AT_LEAST(MAJOR, MINOR) \
  (TORCH_VERSION_MAJOR > (MAJOR) || (TORCH_VERSION_MAJOR == (MAJOR) && TORCH_VERSION_MINOR >= (MINOR)))
