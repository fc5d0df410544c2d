#pragma once
// The MPI of the mpirun that started this process: loaded when it is first asked for, and started
// once a process, as MPI wants it.

#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/spin.h"
#include "levin/comm/mpi/module.h"

namespace levin::comm::mpi {

struct Library {
  Module& module;
  Place place;  ///< rank of this process among all processes that mpirun started, and their number
  bool has_own_core;                        ///< not more ranks on this host than cores
  levin::detail::SpinningMutex mutex = {};  ///< guards calls to the module
};

/// Throws "comm.mpi.start" in a process that no mpirun started, "comm.mpi.absent" where levin's
/// module for that MPI is missing, "comm.mpi.trust", "comm.mpi.threads".
Library& library();

/// Throws "comm.mpi.trust" for a file that other users than this one and root own or may write: it
/// would run as this user.
LEVIN_API void check_trust(const std::string& module);

/// Returns the names, openmpi and mpich, whose module lies beside liblevin.
std::vector<std::string> modules();

}  // namespace levin::comm::mpi
