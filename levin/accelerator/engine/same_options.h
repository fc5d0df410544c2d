#pragma once
// check_same_options: ranks that were started with different options would train something that none of them
// was asked for, or wait for each other.
//
//   check_same_options(world, options_as_text(options), {"project_dir"});

#include <map>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/module/optimizer_config.h"

namespace levin::detail {

/// Checks that all ranks have the same options; all ranks call it. own: options that a rank may
/// have by itself; a name that ends in '*' stands for all with that beginning. Throws Error
/// "accelerator.options" on every rank, which names the first one that differs.
LEVIN_API void check_same_options(comm::ProcessGroup& world,
                                  const std::map<std::string, std::string>& options,
                                  const std::vector<std::string>& own);

/// Describes optimizers for the same comparison: "optimizer 0" to its kind, options, groups and schedule.
LEVIN_API std::map<std::string, std::string> optimizers_as_text(
    const std::vector<OptimizerConfig>& configs);

}  // namespace levin::detail
