#pragma once
// Slurm's short form of a list of hosts: "gpu[1-3,07],login" is gpu1, gpu2, gpu3, gpu07, login.

#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

/// Ranges keep the zeros in front ("n[08-10]" is n08, n09, n10); a name may hold several brackets.
/// Throws Error "comm.environment.hosts" for what is no such list, and for one of more than a
/// million hosts.
LEVIN_API std::vector<std::string> expand_host_list(std::string_view list);

/// Slurm's counts by host: "2(x3),1" is 2, 2, 2, 1. Throws Error "comm.environment.hosts".
LEVIN_API std::vector<int64_t> expand_counts(std::string_view list);

}  // namespace levin::comm
