#include "levin/strategy/fsdp/resharding.h"

#include "levin/base/check.h"

namespace levin::fsdp {

bool stays_gathered(const FsdpOptions& options, const ReshardAfterForward& of_unit, bool is_rest) {
  if (!of_unit.is_set() && is_rest) return true;
  const ReshardAfterForward& own = of_unit.is_set() ? of_unit : options.reshard_after_forward;
  return own.is_set() ? own.ranks_of(/*all=*/2) == 1 : options.gathered_mb < 0;
}

int64_t ranks_after_forward(const FsdpOptions& options, const ReshardAfterForward& of_unit,
                            bool is_rest, const std::string& unit, int64_t num_ranks) {
  if (num_ranks == 1) return 1;
  if (!of_unit.is_set() && is_rest) return 1;
  const bool keeps_all = options.gathered_mb < 0;
  const ReshardAfterForward& own = of_unit.is_set() ? of_unit : options.reshard_after_forward;
  if (!own.is_set()) return keeps_all ? 1 : num_ranks;
  const int64_t ranks = own.ranks_of(num_ranks);
  LEVIN_CHECK(num_ranks % ranks == 0, "strategy.fsdp.options",
              "got reshard_after_forward = {} for unit {}, wanted true, false or a number of ranks "
              "that divides the {} ranks that share a copy of the parameters; change {}",
              ranks, unit, num_ranks,
              of_unit.is_set() ? "the options of wrap()" : "--fsdp-reshard-after-forward");
  LEVIN_CHECK(
      !keeps_all || ranks == 1, "strategy.fsdp.options",
      "unit {} was wrapped with reshard_after_forward = {}, but --fsdp-gathered-mb -1 keeps "
      "all units gathered; leave one of them out",
      unit, to_text(of_unit));
  return ranks;
}

}  // namespace levin::fsdp
