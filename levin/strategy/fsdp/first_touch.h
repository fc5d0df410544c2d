#pragma once
// FirstTouch: sees the operators that compute with units' parameters. Where ranks share no memory, a
// unit is gathered when an operator first touches it; and a write to a parameter within a forward
// pass is found, which no other rank would learn of.
//
//   FirstTouch touch(group, nullptr, {.gathered_bytes = 1 << 28});  touch.add(unit);
//   const graph::HandlerScope scope(touch);
//   net->forward(x);

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

struct FirstTouchOptions {
  int64_t gathered_bytes = 0;  ///< of units that are gathered at a time; 0: of three, -1: no limit
};

/// A cache of gathered units: what is over the limit and was gathered first goes. All ranks touch
/// units in the same order; one that does not is "comm.mismatch" on all of them.
class LEVIN_API FirstTouch final : public graph::OperatorHandler {
 public:
  /// hosts: whose ranks share the memory of a unit, where they do; outlives the object.
  FirstTouch(const comm::ProcessGroup& group, Hosts* hosts, const FirstTouchOptions& options);
  ~FirstTouch() override;

  /// stays: it is kept, beside the limit, once it was gathered.
  void add(Unit& unit, bool stays = false);
  void call(graph::OperatorCall& call) override;

  /// A pass begins, in which units are touched in the order of the last one of its kind, as a rule.
  enum class Pass { kForward, kBackward, kEvaluation };
  void begin(Pass pass);
  /// Values have changed.
  void drop();
  /// After an evaluation, of which ranks may make different numbers of passes: gathers with the
  /// others until they have ended theirs too.
  void end_evaluation();

  /// Whether all units are here.
  bool has_all() const;
  /// Operators that write to a parameter throw Error "strategy.fsdp.write"; costs a look-up each.
  void watch_writes(bool watch) { watches_writes_ = watch; }

  int64_t num_gathers() const { return num_gathers_; }
  /// Of gathered parameters and free buffers, at most so far.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  struct Entry {
    Unit* unit = nullptr;
    at::Tensor memory = {};  ///< bytes: gathered, or on their way
    comm::Work work = {};
    bool is_here = false;  ///< or on its way
    bool is_coming = false;
    bool stays = false;
    int64_t operation = 0;  ///< that touched it last, as far as that was noted
  };

  void touch(const at::Tensor& tensor, bool note);
  void look(const std::vector<c10::IValue>& stack, size_t count, bool note);
  void check_writes(const graph::OperatorCall& call, const std::vector<c10::IValue>& stack) const;
  void gather(size_t index);
  void start(size_t index);
  void arrive(size_t index);
  void prefetch();
  /// Frees what was gathered first until a unit fits; false where that cannot be.
  bool make_room_for(size_t index);
  void give_back(Entry& entry);
  at::Tensor take_memory(int64_t bytes, at::Device device);
  /// What each rank wants; -1: nothing more.
  bool exchange_wishes(int64_t mine, int64_t* wanted);

  comm::ProcessGroup group_;
  Hosts* hosts_;
  FirstTouchOptions options_;
  std::vector<Entry> entries_;
  ska::flat_hash_map<const c10::StorageImpl*, std::pair<size_t, const Leaf*>> places_;
  std::deque<size_t> gathered_;    ///< the first in front
  std::vector<size_t> missing_;    ///< of the operator at hand
  std::vector<at::Tensor> free_;   ///< buffers, of bytes
  std::vector<size_t> orders_[3];  ///< of units, as the last pass of each kind gathered them
  std::vector<size_t> now_;        ///< the same of this pass
  Pass pass_ = Pass::kForward;
  bool follows_ = false;  ///< this pass, the last one so far
  bool watches_writes_ = false;
  int64_t operation_ = 0;
  int64_t used_bytes_ = 0;
  int64_t free_bytes_ = 0;
  int64_t most_bytes_ = 0;
  int64_t limit_ = 0;
  int64_t largest_ = 0;  ///< bytes of a unit
  int64_t staying_ = 0;  ///< of those that stay
  int64_t num_gathers_ = 0;
};

}  // namespace levin::fsdp
