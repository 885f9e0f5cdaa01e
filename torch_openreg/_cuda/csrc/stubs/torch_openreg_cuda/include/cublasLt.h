// The type of cuBLASLt that PyTorch's headers name. at::cuda::getCurrentCUDABlasLtHandle() throws.
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
