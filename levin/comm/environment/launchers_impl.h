#pragma once
// One reader a launcher, each in its own file; the table in environment.cpp asks them in turn.
// Not for users.

#include <optional>

#include "levin/comm/environment/environment.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm::detail {

/// Each gives nothing when the variables are not its launcher's.
std::optional<Environment> read_torchrun(const Variables& variables);
std::optional<Environment> read_kubeflow(const Variables& variables);
std::optional<Environment> read_mpirun(const Variables& variables);
std::optional<Environment> read_slurm(const Variables& variables);

}  // namespace levin::comm::detail
