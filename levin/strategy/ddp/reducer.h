#pragma once
// Reducer: gradients of one module, reduced over the ranks in buckets while backward still runs. A
// hook on every parameter gives its finished gradient to the carrier.
//
//   reducer.begin(true); loss.backward(); reducer.end();
//   reducer.launch_rest(true); reducer.settle_all(); reducer.finish();
//
// Follows PyTorch's DistributedDataParallel (Li et al. 2020, "PyTorch Distributed").

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/module/parameters.h"
#include "levin/strategy/ddp/carrier.h"
#include "levin/strategy/options.h"
#include "levin/strategy/stray_gradients.h"

namespace levin::ddp {

/// Under a carrier that does not tell in each backward who used what, ranks agree on it in the first
/// one that synchronizes: each uses the same parameters from then on.
class Reducer {
 public:
  /// All ranks make it at the same time. agrees: whether ranks ask each other about the first
  /// backward; without it all use the same parameters in each.
  Reducer(comm::ProcessGroup group, std::vector<NamedTensor> parameters, const DdpOptions& options,
          std::unique_ptr<Carrier> carrier, bool agrees = true);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Call it before each backward. With synchronize its gradients are reduced. overlaps: buckets
  /// may start before launch_rest().
  void begin(bool synchronize, bool overlaps = true);
  /// Call it after the backward.
  void end();
  /// Call it before an update: throws Error "strategy.backward.local" for gradients of another
  /// backward.
  void check_backward(std::string_view strategy) { stray_.check(strategy); }
  /// Returns whether this backward gave a gradient to any parameter here.
  bool touched() const { return !arrivals_.empty(); }
  /// Returns whether any parameter has a gradient.
  bool holds_gradients() const;
  /// Starts the remaining buckets after a backward that synchronizes, or without one on a rank that
  /// has no loss. counts: gradients of earlier batches belong to this step. Throws Error
  /// "strategy.ddp.unused" if ranks have agreed on a parameter that has no gradient now.
  void launch_rest(bool counts);
  /// Then, for each bucket in turn: waits until its parameters have their gradients.
  void settle(size_t bucket);
  size_t num_buckets() const { return buckets_.size(); }
  /// Settles all buckets in turn. Returns whether any rank has used any parameter.
  bool settle_all();
  /// Call it after all of them. Throws Error "strategy.ddp.unused" for parameters without gradient
  /// if that was ruled out.
  void finish();

  /// The bucket of a parameter; none of one that is not here or needs no gradient.
  std::optional<size_t> bucket_of(const at::Tensor& parameter) const;
  /// Another number whenever parameters went to other buckets.
  int64_t layout() const { return layout_; }
  /// Reduced gradients are multiplied with it; 1 at first.
  void set_scale(double scale) { scale_ = scale; }
  /// No rank touched this module, so nothing is reduced.
  void skip();

  /// The order in which gradients arrive, learnt from the first backward: {"order": names}.
  State state_dict() const;
  /// A state of other parameters is passed over.
  void load_state_dict(const State& state);

 private:
  /// The use that ranks have agreed on; unknown before the first backward.
  enum class Use { kUnknown, kHere, kElsewhere, kNowhere };
  struct Slot {
    std::optional<size_t> bucket = {};
    bool arrived = false;
    bool was_empty = false;  ///< no gradient before this backward
    bool is_summed = false;  ///< .grad is that of all ranks
    at::Tensor aside = {};   ///< with sums: the sum before this backward
    Use use = Use::kUnknown;
  };
  struct Bucket {
    std::vector<size_t> members;
    int64_t missing = 0;
    bool launched = false;  ///< and not settled
  };

  void take_unfrozen();
  void make_buckets(const std::vector<size_t>& order);
  void choose_members();
  void put_aside(size_t index);
  void take_back(size_t index);
  void arrived(size_t index);
  void check_expected(size_t index) const;
  void fill_missing(Bucket& bucket, bool counts);
  void launch_complete();
  void launch(size_t bucket, bool counts);
  void drop_launched();
  void settle_unused();
  void agree_on_use();
  void check_use() const;
  void add_condition();
  int64_t num_summed() const;
  void note_for_replays();
  bool is_trained(size_t index) const { return parameters_[index].requires_grad(); }
  bool is_expected(size_t index) const;
  bool is_here(size_t index) const;

  comm::ProcessGroup group_;
  DdpOptions options_;
  std::unique_ptr<Carrier> carrier_;
  bool agrees_;
  std::vector<NamedTensor> frozen_;  ///< need no gradient yet
  std::vector<NamedTensor> names_;
  std::vector<at::Tensor> parameters_;
  std::vector<comm::PlannedGradient> planned_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> order_;
  std::vector<size_t> arrivals_;  ///< gradients that arrived in this backward
  std::vector<size_t> unused_;    ///< by every rank, in the last synchronized backward
  std::vector<bool> expected_;    ///< gradients expected with a static graph, once settled_
  size_t next_ = 0;               ///< bucket to launch
  int64_t layout_ = 0;
  bool synchronizing_ = false;
  bool overlaps_ = false;  ///< buckets start as soon as they are full
  bool learning_ = false;  ///< ranks will agree after this backward, and nothing starts before
  bool learnt_ = false;
  bool settled_ = false;
  bool told_unused_ = false;
  double scale_ = 1;
  StrayGradients stray_;
  std::shared_ptr<Reducer*> self_;  ///< held by the hooks; none once this is gone
};

}  // namespace levin::ddp
