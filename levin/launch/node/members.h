#pragma once
// What each rank of a node is started with: its command, variables, CPUs, log files and prefix.

#include <vector>

#include "levin/launch/node/rank_group.h"
#include "levin/launch/options.h"
#include "levin/launch/plan.h"

namespace levin::launch {

/// Throws Error "launch.binding" when the CPUs do not suffice. program is the file to run where it
/// is not the command's first word.
std::vector<Member> members_of(const Plan& plan, const LaunchOptions& options,
                               const std::string& program);

}  // namespace levin::launch
