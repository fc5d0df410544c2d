#include "levin/comm/nccl/nccl.h"

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "levin/base/check.h"

namespace levin::comm {

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

}  // namespace levin::comm
