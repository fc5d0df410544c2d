#pragma once
// As much of cusparse's header as LibTorch's headers read, for a compiler that makes no object.
struct cusparseContext;
typedef cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
const char* cusparseGetErrorString(cusparseStatus_t status);
