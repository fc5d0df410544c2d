#pragma once
// LazyGather: sees the operators that compute with units' parameters. Where ranks share no memory, a
// unit is gathered when an operator first touches it, and what autocast casts is gathered as that.
//
//   LazyGather touch(group, nullptr, {.gathered_bytes = 1 << 28});  touch.add(unit);
//   const graph::HandlerScope scope(touch);
//   net->forward(x);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/fsdp/gather/leaf_places.h"
#include "levin/strategy/fsdp/gather/leaf_uses.h"
#include "levin/strategy/fsdp/gather/operator_aliases.h"
#include "levin/strategy/fsdp/gather/unit_cache.h"
#include "levin/strategy/fsdp/unit.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace levin::fsdp {

struct FirstTouchOptions {
  int64_t gathered_bytes = 0;  ///< bytes of units gathered at a time; 0: three units, -1: no limit
};

class LEVIN_API LazyGather final : public graph::OperatorHandler {
 public:
  /// hosts: whose ranks share the memory of a unit, where they do; outlives the object.
  LazyGather(const comm::ProcessGroup& group, Hosts* hosts, const FirstTouchOptions& options);
  ~LazyGather() override;

  /// stays: it is kept, beside the limit, once it was gathered. All units are added before the first
  /// pass, or between steps.
  void add(Unit& unit, bool stays = false);
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
    bool stays = false;
  };
  void add_images(size_t number);
  void look(const std::vector<c10::IValue>& stack, size_t count);
  bool answer_cast(graph::OperatorCall& call);
  void require(size_t image);

  comm::ProcessGroup group_;
  std::vector<Entry> units_;
  UnitCache cache_;
  LeafPlaces places_;
  std::vector<std::vector<size_t>> images_;  ///< by unit and leaf, as a pass reads it
  LeafUses uses_;
  OperatorAliases aliases_;
  std::vector<size_t> required_;  ///< images of the operator at hand
  bool gathers_ = false;          ///< some unit's memory is not always there
  bool learns_ = false;           ///< uses are noted
  int64_t num_learnt_ = 0;
};

}  // namespace levin::fsdp
