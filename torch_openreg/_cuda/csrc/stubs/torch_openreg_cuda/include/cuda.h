// The types of CUDA's driver API that PyTorch's headers name. The device library has no driver API.
#pragma once
#define CUDA_VERSION 12080 // as CUDART_VERSION

typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
