#pragma once
// Throws an error of one rank on all ranks.
// Not for users.

#include <functional>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"

namespace levin::detail {

/// Runs a body on each rank of the group and hands all ranks the words that it left, by rank. Where
/// it throws on some, the first one's Error is thrown on all, as "on rank N: ..." (another exception
/// as "checkpoint.failed"; one rank alone lets it pass). The body holds no collective operation.
LEVIN_API std::vector<State> together(comm::ProcessGroup& group,
                                      const std::function<void(State& word)>& body);

}  // namespace levin::detail
