#pragma once
// RecordedGather: gathers parameters by operators, in steps that are recorded and where ranks share no
// memory. An operator that reads a parameter gets in its place a buffer that levin::all_gather_ has
// filled, so that a recording has the gathers among its nodes, and its passes can join, overlap and
// repeat them.
//
//   RecordedGather gather(/*gathered_bytes=*/1 << 28);  gather.add(unit, /*stays=*/false);
//   gather.begin();                                      // parameters are rows
//   const graph::HandlerScope scope(gather);
//   net->forward(x);                                     // parameters have their full sizes

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "levin/comm/process_group.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/fsdp/gather/operator_aliases.h"
#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

class RecordedGather final : public graph::OperatorHandler {
 public:
  /// gathered_bytes: bytes of parameters that are held for later operators; 0: those of three units,
  /// -1: no limit.
  explicit RecordedGather(int64_t gathered_bytes) : gathered_bytes_(gathered_bytes) {}

  /// The unit outlives it. stays: its parameters are held beside the limit.
  void add(const Unit& unit, bool stays);
  /// Call it before each pass, while parameters show their rows.
  void begin();
  /// Throws Error "strategy.fsdp.write" for an operator that writes to a parameter, and
  /// "strategy.fsdp.recorded_view" for one that reads it through a view of another dtype.
  void call(graph::OperatorCall& call) override;
  /// Values have changed.
  void drop();

 private:
  struct Entry {
    const shard::ShardedParameter* parameter = nullptr;
    comm::ProcessGroup group = {};
    std::vector<int64_t> counts = {};  ///< elements of each rank
    bool stays = false;
    std::vector<Entry*> joined = {};  ///< parameters that are gathered with it, itself among them
    at::Tensor rows = {};             ///< this rank's elements, flat
    at::Tensor full = {};             ///< all elements, flat; undefined: not gathered
  };
  Entry* entry_of(const at::Tensor& tensor);
  void replace_in(c10::IValue& argument, const graph::OperatorCall& call);
  at::Tensor gathered(Entry& entry, const at::Tensor& tensor, const graph::OperatorCall& call);
  void gather(Entry& entry);
  static void gather_joined(const std::vector<Entry*>& entries);
  void hold(Entry& entry);
  void make_room();

  int64_t gathered_bytes_;
  int64_t largest_ = 0;  ///< bytes of a unit
  int64_t held_ = 0;     ///< bytes of what is in held_in_order_
  std::unordered_map<const shard::ShardedParameter*, Entry> entries_;
  std::vector<Entry*> all_;           ///< in the order of units
  std::deque<Entry*> held_in_order_;  ///< the first in front; without those that stay
  OperatorAliases aliases_;
};

}  // namespace levin::fsdp
