#pragma once
// CommOptions: how the processes of a run talk to each other; the Trainer's and the Accelerator's.

#include <string>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin {

struct CommOptions {
  /// What carries bytes between processes: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi.
  std::string backend = "auto";
  double timeout_s = 1800;           ///< of one exchange between processes
  double connect_timeout_s = 300;    ///< for all processes to come at the start
  double prepare_timeout_s = 86400;  ///< while one of them prepares data (prepare_data)
  bool check = false;  ///< compare each exchange between GPUs first, as it is between CPUs

  LEVIN_API void fields(FieldVisitor& field);
};

}  // namespace levin
