#pragma once
// LazyGather: sees the operators that compute with units' parameters. Where ranks share no memory, a
// unit is gathered when an operator first touches it, and what autocast casts is gathered as that.
//
//   LazyGather gather(group, /*gathered_bytes=*/1 << 28);  gather.add(unit);
//   const graph::HandlerScope scope(gather);
//   net->forward(x);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/fsdp/gather/cast_uses.h"
#include "levin/strategy/fsdp/gather/operator_aliases.h"
#include "levin/strategy/fsdp/gather/unit_cache.h"
#include "levin/strategy/fsdp/unit.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace levin::fsdp {

class LEVIN_API LazyGather final : public graph::OperatorHandler {
 public:
  /// gathered_bytes: bytes of units gathered at a time; 0: those of three units, -1: no limit.
  LazyGather(const comm::ProcessGroup& group, int64_t gathered_bytes);
  ~LazyGather() override;

  /// All units are added before the first pass, or between steps.
  void add(Unit& unit, const Resharding& resharding = {});
  /// Throws Error "strategy.fsdp.write" for one that writes to a parameter.
  void call(graph::OperatorCall& call) override;

  using Pass = UnitCache::Pass;
  void begin(Pass pass);
  /// Called at the beginning of a backward with its nodes in order. Units are prefetched in the
  /// order of the nodes that read their values.
  void plan_backward(std::span<torch::autograd::Node* const> nodes);
  /// Values have changed.
  void drop();
  /// Called after an update, with nothing gathered. Decides which parameters are gathered in
  /// another type, by their use in the first steps. All ranks call it.
  void learn_uses();
  /// Called after an evaluation, in which ranks may make different numbers of passes: gathers with
  /// the others until they have ended theirs too.
  void end_evaluation();

  /// Returns whether any unit may have to be gathered.
  bool gathers() const { return gathers_; }
  const UnitCache& cache() const { return cache_; }

 private:
  struct Entry {
    Unit* unit = nullptr;
    Resharding resharding = {};
    std::vector<size_t> numbers =
        {};  ///< of each parameter: the cache's number of what a pass reads
    /// Numbers of memories in the unit's dtype. They differ where a pass reads a cast.
    std::vector<size_t> as_stored = {};
  };
  void add_memories(size_t unit);
  /// Returns the parameter whose values, in any dtype, a tensor shows, if it is in one of the units.
  const shard::ShardedParameter* parameter_of(const at::Tensor& tensor) const;
  /// Returns the cache's number of the memory that a tensor shows.
  size_t number_of(const shard::ShardedParameter& parameter, const at::Tensor& tensor) const;
  size_t number_of(const shard::ShardedParameter& parameter) const {
    return units_[parameter.place().unit].numbers[parameter.place().number];
  }
  void check_writes(const c10::FunctionSchema& schema, const OperatorAliases::Aliases& aliases,
                    const std::vector<c10::IValue>& stack) const;
  std::vector<size_t> backward_order(std::span<torch::autograd::Node* const> nodes) const;
  void look(const std::vector<c10::IValue>& stack, size_t count);
  bool answer_cast(graph::OperatorCall& call);
  void require(size_t number);

  comm::ProcessGroup group_;
  std::vector<Entry> units_;
  std::vector<std::unique_ptr<UnitMemory>> casts_;  ///< of parts of units, and in other dtypes
  UnitCache cache_;
  CastUses uses_;
  OperatorAliases aliases_;
  std::vector<size_t> required_;  ///< by the operator at hand
  bool gathers_ = false;          ///< some unit's memory is not always there
  bool learns_ = false;           ///< uses are noted
  int64_t num_learnt_ = 0;
};

}  // namespace levin::fsdp
