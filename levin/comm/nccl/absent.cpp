// Replaces nccl.cpp if LibTorch has no CUDA, or its headers were not found.
#include "levin/base/check.h"
#include "levin/comm/nccl/nccl.h"

namespace levin::comm {

bool has_nccl() { return false; }

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>&, int64_t,
                                                    int64_t, std::chrono::milliseconds) {
  LEVIN_FAIL("comm.nccl",
             "got GPUs to connect but this build of levin has no NCCL; build it with a CUDA build "
             "of LibTorch and the CUDA and NCCL headers, or set --accelerator cpu");
}

}  // namespace levin::comm
