#include "CudaHooks.h"

const char* c10::openreg::cuda_hooks_failure = nullptr;
