#pragma once
// As much of cublasLt's header as LibTorch's headers read, for a compiler that makes no object.
struct cublasLtContext;
typedef cublasLtContext* cublasLtHandle_t;
