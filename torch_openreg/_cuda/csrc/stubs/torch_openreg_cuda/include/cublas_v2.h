// The types of cuBLAS that PyTorch's headers name. at::cuda::getCurrentCUDABlasHandle() throws.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
