// The exchange of gradients by operators, for steps that are recorded and replayed.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/fsdp/gradients/gradients_impl.h"

namespace levin::fsdp {

void Gradients::reduce_by_operators(UnitGradients& unit) {
  unit.target = at::empty({unit.layout.run(shards_.rank())}, unit.memory.options());
  comm::call_reduce_scatter(unit.target, unit.memory, unit.layout.runs(), reduction(), shards_);
  if (replicas_.size() > 1 && unit.target.numel() > 0) {
    comm::call_all_reduce({unit.target}, replicas_, reduction());
  }
  unit.memory.reset();
}

/// Ranks tell each other once which parameters they used; the exchange is not recorded, and a rank
/// cannot tell the others in a step that is replayed.
void Gradients::agree_on_use() {
  double* flags = used_.mutable_data_ptr<double>();
  const auto count = static_cast<size_t>(used_.numel());
  if (agreed_use_.empty()) {
    const graph::UnseenScope unseen;
    own_use_.assign(flags, flags + count);
    group_.all_reduce(used_, ReduceOp::kSum);
    agreed_use_.assign(flags, flags + count);
    return;
  }
  for (const auto& unit : units_) {
    size_t flag = unit->first_flag;
    for (const auto& parameter : unit->unit->parameters()) {
      const bool is_used = flags[flag] != 0, was_used = own_use_[flag] != 0;
      ++flag;
      LEVIN_CHECK(is_used == was_used, "strategy.fsdp.unused",
                  "parameter {} got {} but {} in the first step; recorded steps must use the same "
                  "parameters every time, so set --compile no",
                  parameter->name(), is_used ? "a gradient" : "no gradient",
                  was_used ? "got one" : "got none");
    }
  }
  std::ranges::copy(agreed_use_, flags);
}

}  // namespace levin::fsdp
