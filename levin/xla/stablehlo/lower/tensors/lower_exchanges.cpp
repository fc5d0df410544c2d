// Exchanges between the replicas of a program.
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// tensors, group, op
void lower_all_reduce(Lowering& at) {
  const std::string_view op = at.text(2);
  const bool is_mean = op == "mean";
  const std::string_view name = is_mean || op == "sum" ? "add"
                                : op == "min"          ? "minimum"
                                : op == "max"          ? "maximum"
                                                       : "multiply";
  for (const Hlo& x : at.tensors(0)) {
    const Hlo total = at.hlo.all_reduce(name, x, at.num_replicas());
    at.give(is_mean ? at.hlo.binary("divide", total, at.like(at.num_replicas(), total)) : total);
  }
}

/// tensors, group, root: a sum to which the others add nothing. StableHLO's collective_broadcast is
/// not there on all platforms.
void lower_broadcast(Lowering& at) {
  const Hlo replica = at.hlo.call("replica_id", {}, "", at::kUInt32, {});
  const Hlo is_root = at.hlo.compare("EQ", replica, at.hlo.constant(at.integer(2), at::kUInt32));
  for (const Hlo& x : at.tensors(0)) {
    const Hlo own = at.hlo.select(at.spread(is_root, x), x, at.like(0, x));
    const std::string_view name = x.dtype == at::kBool ? "or" : "add";
    at.give(at.hlo.all_reduce(name, own, at.num_replicas()));
  }
}

}  // namespace

void add_exchanges(LoweringTable& table) {
  table["levin::all_reduce_"] = lower_all_reduce;
  table["levin::broadcast_"] = lower_broadcast;
}

}  // namespace levin::xla
