#pragma once
// As much of cublas's header as LibTorch's headers read, for a compiler that makes no object.
struct cublasContext;
typedef cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
