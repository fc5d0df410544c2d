#pragma once
// The hierarchical backend: shared memory within each host, gloo or MPI between hosts. With gloo it
// is the default of CPU ranks on several hosts if some of them have several ranks.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/hierarchical/layout.h"
#include "levin/comm/messages/algorithms.h"

namespace levin::comm {

/// The backend that carries the bytes from host to host.
struct BetweenHosts {
  Carrier carrier = Carrier::kGloo;
  std::string own_address = {};            ///< for gloo: where other hosts reach this one
  std::vector<int64_t> global_ranks = {};  ///< for MPI: as mpirun numbers the group's; none: all
};

/// The ranks of one host communicate as in make_shm_backend, the hosts as in make_gloo_backend or
/// make_mpi_backend.
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, const HostLayout& layout,
    std::chrono::milliseconds timeout, const BetweenHosts& between = {});

}  // namespace levin::comm
