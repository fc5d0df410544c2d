#pragma once
// The shm backend: collectives of the ranks of one machine through memory that they share.
// The default of ranks on CPUs; c10d's interface over shm::Group.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "levin/base/export.h"

namespace levin::comm {

/// CPU tensors of any layout and size; those from allocateTensor are read where they lie. Results
/// are the same bits on every rank and in every run: sums go in rank order. Calls run in the order
/// in which they were made; asyncOp=false runs one in the caller's thread. send and recv involve
/// the two ranks alone, which must name the same tags in the same order. The store is for this
/// group alone, and for this start of it: a c10d::PrefixStore.
///
/// Throws "comm.shm.link", "comm.shm.memory", "comm.timeout", "comm.peer", "comm.mismatch",
/// "comm.closed", "comm.reduce", "comm.rank", "comm.tensor", "comm.unsupported" (recvAnysource).
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_shm_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
    std::chrono::milliseconds timeout);

}  // namespace levin::comm
