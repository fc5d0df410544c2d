#pragma once
// Chooses the CPUs on which a rank may run, from Linux's description of the machine.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::launch {

/// Throws Error "launch.options" when it is not none, node, socket, core-complex or exclusive.
LEVIN_API void check_binding(std::string_view binding);

/// "0-2,5" is 0, 1, 2, 5, as /sys writes lists. Throws Error "launch.binding".
LEVIN_API std::vector<int> parse_cpu_list(std::string_view text);

/// For node, socket and core-complex the ranks of this host are dealt out in blocks to the NUMA
/// nodes, sockets or groups of cores with one last-level cache; exclusive gives each rank CPUs of
/// its own, of one NUMA node where it can. Only CPUs that this process may use. Empty for none.
/// Throws Error "launch.binding" when there are fewer CPUs than ranks.
LEVIN_API std::vector<int> cpus_for(std::string_view binding, int64_t local_rank,
                                    int64_t local_world_size,
                                    const std::filesystem::path& system = "/sys/devices/system");

}  // namespace levin::launch
