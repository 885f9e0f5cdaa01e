// The type of cuSOLVER that PyTorch's headers name. No library here has at::cuda::getCurrentCUDASolverDnHandle().
#pragma once
#include <cusolver_common.h>
typedef struct cusolverDnContext* cusolverDnHandle_t;
