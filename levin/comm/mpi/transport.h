#pragma once
// Messages by non-blocking MPI calls that are polled against a deadline.

#include <chrono>
#include <memory>
#include <span>

#include "levin/comm/messages/transport.h"
#include "levin/comm/mpi/library.h"

namespace levin::comm::mpi {

/// Connects these ranks of the world. Throws "comm.timeout" when one of them does not come, and
/// "comm.mismatch" when one calls it with other ranks. After "comm.timeout" of a message a late one
/// may still write to the tensor: the process should end.
std::unique_ptr<Transport> make_mpi_transport(Library& library, std::span<const int> ranks,
                                              std::chrono::milliseconds timeout);

}  // namespace levin::comm::mpi
