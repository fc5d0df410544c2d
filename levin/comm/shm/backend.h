#pragma once
// The shm backend: collectives of the ranks of one machine through memory that they share.
// The default of ranks on CPUs; c10d's interface over shm::Group.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/shm/group.h"

namespace levin::comm {

/// Makes the group of a host's ranks. The store must be a c10d::PrefixStore for this group and this
/// start of it alone. Throws "comm.shm.link" and "comm.shm.memory".
std::unique_ptr<shm::Group> make_shm_group(const c10::intrusive_ptr<c10d::Store>& store,
                                           int64_t rank, int64_t size,
                                           std::chrono::milliseconds timeout);

/// A backend whose tensors may lie in memory that the ranks of a host share.
class SharedMemoryBackend final : public QueuedBackend {
 public:
  /// memory belongs to the collectives.
  SharedMemoryBackend(std::string name, int64_t rank, int64_t size,
                      std::unique_ptr<Collectives> collectives, shm::Group& memory);

  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  /// Collective: every rank asks for the same size.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  /// Throws "comm.unsupported" where not all ranks of the backend are of one host.
  std::shared_ptr<shm::SharedMemory> share(at::ScalarType type, Counts counts);

 private:
  shm::Group& memory_;
};

/// Does shm::Group::share for the ranks of a backend. Throws "comm.unsupported" for a backend
/// without memory that all ranks share.
std::shared_ptr<shm::SharedMemory> share_memory(c10d::Backend& backend, at::ScalarType type,
                                                Counts counts);

/// CPU tensors of any layout and size; those from allocateTensor are read where they lie. Results
/// are the same bits on every rank and in every run: sums go in rank order. Calls run in the order
/// in which they were made; asyncOp=false runs one in the caller's thread. send and recv involve
/// the two ranks alone, which must name the same tags in the same order. The store is as in
/// make_shm_group.
///
/// Throws "comm.shm.link", "comm.shm.memory", "comm.timeout", "comm.peer", "comm.mismatch",
/// "comm.closed", "comm.reduce", "comm.rank", "comm.tensor", "comm.unsupported" (recvAnysource).
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_shm_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
    std::chrono::milliseconds timeout);

}  // namespace levin::comm
