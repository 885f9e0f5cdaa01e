#pragma once

#include "runtime/OpenRegException.h"

namespace c10::openreg {

// Why the hooks could not be given to PyTorch; null after a success.
OPENREG_API extern const char* cuda_hooks_failure;

} // namespace c10::openreg
