#pragma once
// As much of cusolver's header as LibTorch's headers read, for a compiler that makes no object.
struct cusolverDnContext;
typedef cusolverDnContext* cusolverDnHandle_t;
