#pragma once
// The nccl backend: collectives between GPUs, c10d's ProcessGroupNCCL in a CUDA build of LibTorch.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>

#include "levin/base/export.h"

namespace levin::comm {

/// Returns whether liblevin was built with NCCL: LibTorch has CUDA, and the headers of CUDA's run
/// time and NCCL were found.
LEVIN_API bool has_nccl();

/// For tensors on this process' GPU; each rank needs one of its own. Calls are started on NCCL's
/// stream, behind what the current stream does, and wait() lets the current stream wait, not the
/// process. Throws "comm.nccl" where has_nccl() is false or no GPU is there.
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_nccl_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
    std::chrono::milliseconds timeout);

}  // namespace levin::comm
