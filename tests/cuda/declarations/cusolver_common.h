#pragma once
// As much of cusolver's header as LibTorch's headers read, for a compiler that makes no object.
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
