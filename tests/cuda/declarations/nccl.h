#pragma once
// As much of NCCL's header as LibTorch's ProcessGroupNCCL.hpp reads, for a compiler that looks for errors and
// makes no object: NCCL's own comes with 200 MB. It says the oldest version that LibTorch takes.
#include <cuda_runtime_api.h>

#include <cstddef>

#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 23, 4)
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_CONFIG_INITIALIZER \
  {                             \
  }
#define NCCL_SIM_INFO_INITIALIZER \
  {                               \
  }

struct ncclComm;
typedef ncclComm* ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;
typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclHalf = 6,
  ncclFloat = 7,
  ncclDouble = 8,
  ncclBfloat16 = 9
} ncclDataType_t;
typedef struct {
  int blocking;
} ncclConfig_t;
typedef struct {
  float estimatedTime;
} ncclSimInfo_t;

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
