// The types of cuSPARSE that PyTorch's headers name. at::cuda::getCurrentCUDASparseHandle() throws.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
