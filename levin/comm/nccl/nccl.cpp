#include "levin/comm/nccl/nccl.h"

#include "levin/base/check.h"

#ifdef LEVIN_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace levin::comm {

#ifdef LEVIN_NCCL

bool has_nccl() { return true; }

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int64_t rank, int64_t size,
                                                    std::chrono::milliseconds timeout) {
  using c10d::ProcessGroupNCCL;
  // High priority: a reduction is what the backward pass after it waits for.
  const auto options = ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = timeout;
  try {
    return c10::make_intrusive<ProcessGroupNCCL>(store, static_cast<int>(rank),
                                                 static_cast<int>(size), options);
  } catch (const std::exception& error) {
    LEVIN_FAIL("comm.nccl", "rank {} of {} cannot start NCCL: {}", rank, size, error.what());
  }
}

#else

bool has_nccl() { return false; }

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>&, int64_t,
                                                    int64_t, std::chrono::milliseconds) {
  LEVIN_FAIL("comm.nccl",
             "got GPUs to join and this build of levin has no NCCL; build it with a CUDA build of "
             "LibTorch, or set --accelerator cpu");
}

#endif

}  // namespace levin::comm
