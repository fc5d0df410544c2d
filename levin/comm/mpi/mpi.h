#pragma once
// The mpi backend: collectives by an MPI library, Open MPI or MPICH and its kin, over whatever
// network that one knows. For processes that its mpirun started.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/messages/transport.h"

namespace levin::comm {

/// Makes a backend of all processes, or of the processes `global_ranks` (their numbers under
/// mpirun, in the order of the ranks in the group). Every member calls it. It takes CPU tensors of
/// any layout and size. Sums go in rank order, so the bits are the same on every rank, in every run
/// and with the shm backend. Calls run in the order in which they were made; asyncOp=false runs one
/// in the caller's thread. send and recv involve the two ranks alone, which must name the same tags
/// in the same order.
///
/// liblevin itself needs no MPI: it loads liblevin_mpi_openmpi.so or liblevin_mpi_mpich.so, as the
/// mpirun says, or what the variable LEVIN_MPI_MODULE names. MPI_Init is called unless it was; the
/// program's exit calls MPI_Finalize, or MPI_Abort after an error.
///
/// Throws "comm.mpi", "comm.mpi.absent", "comm.mpi.rank", "comm.mpi.start", "comm.mpi.threads",
/// "comm.timeout", "comm.mismatch", "comm.closed", "comm.reduce", "comm.rank", "comm.tensor",
/// "comm.unsupported" (recvAnysource).
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_mpi_backend(
    int64_t rank, int64_t size, std::chrono::milliseconds timeout,
    const std::vector<int64_t>& global_ranks = {});

/// The messages of such a group, for other collectives over them. Throws as make_mpi_backend.
std::unique_ptr<Transport> connect_by_mpi(int64_t rank, int64_t size,
                                          std::chrono::milliseconds timeout,
                                          const std::vector<int64_t>& global_ranks);

/// The kinds of MPI that this build of levin has a module for: "openmpi", "mpich".
LEVIN_API std::vector<std::string> mpi_modules();

}  // namespace levin::comm
