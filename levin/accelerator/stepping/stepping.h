#pragma once
// Stepping: when gradients agree over the ranks and when the optimizers step with them.
// The part of the engine between a loss and the optimizers: accumulation, the loss scale of
// 16-mixed, losses that are left out.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/accelerator/stepping/loss_guard.h"
#include "levin/accelerator/stepping/loss_weights.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/graph/compile/compiled.h"
#include "levin/optim/grad_scaler.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/strategy.h"

namespace levin {

struct SteppingOptions {
  int64_t gradient_accumulation_steps = 1;
  bool sync_each_batch = false;  ///< gradients agree after each batch of a group too
  bool step_scheduler_with_optimizer = true;
  bool scales_loss = false;
  optim::GradScalerOptions scaler = {};
  LossGuardOptions loss_guard = {};
  at::Device device = at::kCPU;
  bool records = false;  ///< steps may be recorded
};

/// Where a batch stands among those whose gradients are stepped with together.
struct GroupPlace {
  int64_t group_size = 1;   ///< batches of its group; at most so many, where ends_epoch comes first
  bool ends_epoch = false;  ///< it is the last of the epoch, and so of its group
  bool may_weigh = false;   ///< batches may have weights: the ranks ask each other
};

class LEVIN_API Stepping {
 public:
  /// The strategy must outlive it. Throws Error "accelerator.accumulate",
  /// "accelerator.loss.policy" and "optim.scaler.options".
  Stepping(Strategy& strategy, const comm::ProcessGroup& world, const SteppingOptions& options);
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

  /// An optimizer whose steps these are; must outlive this, or begin_anew comes first.
  void add(optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  /// Of other modules, and their optimizers.
  void begin_anew(Strategy& strategy);

  /// The next batch of a group; the last one's gradients agree over the ranks and are stepped with.
  void begin_batch(const GroupPlace& place);
  void end_batch() { in_batch_ = false; }
  /// The next batch begins a group. The gradients since the last step are not stepped with.
  void drop_group();
  /// What this batch's loss counts for in its group: see LossWeights.
  void set_loss_weight(at::Tensor weight) { weights_.set(std::move(weight)); }
  /// Whether the loss is one to go backward from; not where its weight is 0.
  bool gives_gradients(const at::Tensor& loss) {
    return loss.defined() && !weights_.batch_counts_nothing();
  }
  /// Whether a batch of this group, or at its end one of another rank, has given gradients.
  bool has_gradients() const { return position_.has_gradients; }
  /// Other ranks wait for what this batch gives, or for join_exchange() in its place.
  bool is_awaited() const { return sync_gradients() && world_.size() > 1; }
  /// Call it in place of a synchronizing backward where this rank's batch gives no gradients.
  /// Throws what Strategy::backward throws.
  void join_exchange();
  /// Whether a group that is complete has anything to step with; false where the weights of all its
  /// batches are 0. All ranks call it.
  bool group_counts();
  /// After the steps of a group that group_counts() was asked about.
  void end_group();
  /// Whether this batch ends a group; true outside of all batches.
  bool sync_gradients() const { return !in_batch_ || synchronizes_; }
  int64_t accumulation_steps() const { return options_.gradient_accumulation_steps; }
  /// Between the two, which may be nested, gradients are not exchanged.
  void enter_no_sync() { ++unsynchronized_; }
  void leave_no_sync() { --unsynchronized_; }
  /// The next backward's gradients agree over the ranks, with what was added up before, wherever it
  /// is.
  void synchronize_next() { position_.synchronizes_next = true; }

  /// What the loss guard calls a batch; none: its number.
  void set_where(std::function<std::string()> where) { where_ = std::move(where); }

  /// Called after each step that was taken, not after one that was replayed.
  void set_after_step(std::function<void(const optim::Optimizer&)> after_step) {
    after_step_ = std::move(after_step);
  }
  /// Whether batches were ever grouped, or a step recorded.
  bool has_grouped() const { return has_grouped_; }
  bool has_recorded() const { return has_recorded_; }

  void backward(const at::Tensor& loss, bool synchronize);
  /// What backward does first; for a rank that makes the others' steps without a loss of its own.
  void begin_backward();
  /// Makes the optimizer's gradients those of its batches: waits for the ranks', divides by the
  /// loss scale and by the group's weight, and weighs a group that the epoch's end cut short. Once
  /// a step; step() does it too.
  void finish_gradients(const optim::Optimizer& optimizer);
  /// False where it was left out: inside a group of batches, after an overflow, for a bad loss.
  /// Throws Error "accelerator.step" between the batches of a group.
  bool step(optim::Optimizer& optimizer);
  /// For an optimizer that computes the loss itself in a step. Throws Error "optim.closure" where
  /// steps are made of more than one loss, or may be left out.
  void check_closure(const optim::Optimizer& optimizer) const;
  /// After each of its evaluations: gradients agree. Returns the mean of the ranks' losses.
  at::Tensor finish_evaluation(const at::Tensor& loss);
  /// The last step() of some optimizer was.
  bool was_left_out() const { return position_.was_left_out; }
  /// Unless the gradients still wait for the other batches of their group.
  void zero_grad(optim::Optimizer& optimizer);

  void clip_grad_norm(const optim::Optimizer& optimizer, double max_norm);
  /// Lightning's function of that name: algorithm is "norm" or "value"; 0 is off.
  void clip_gradients(const optim::Optimizer& optimizer, double clip_val,
                      std::string_view algorithm);
  bool moves_schedules() const { return options_.step_scheduler_with_optimizer; }

  /// For its time steps are recorded, to be replayed.
  class LEVIN_API RecordingScope {
   public:
    RecordingScope(Stepping& stepping, graph::HostPart& recording);
    ~RecordingScope();
    RecordingScope(const RecordingScope&) = delete;
    RecordingScope& operator=(const RecordingScope&) = delete;

   private:
    Stepping& stepping_;
  };
  /// While a step is being recorded; else nullptr.
  graph::HostPart* recording() const { return recording_; }
  /// A step asks for a number that steps change; what it does may depend on it.
  void reads(const char* what, std::function<graph::ExactNumber()> number) const;
  /// What of it decides which operators a step runs.
  void add_guards(std::vector<graph::Guard>& guards) const;

  /// With the losses that it has looked at.
  const LossGuard& loss_guard() const { return guard_; }
  void set_loss_guard(const LossGuard& guard) { guard_ = guard; }

  const optim::GradScaler* scaler() const { return scaler_ ? &*scaler_ : nullptr; }

  State state_dict();
  /// Begins a group of batches: gradients are not saved, and those that there are belong to what
  /// was before.
  void load_state_dict(const State& state);

 private:
  /// What steps change, beside tensors.
  struct Position {
    bool synchronizes_next = false;
    bool was_left_out = false;
    std::set<const optim::Optimizer*> finished = {};  ///< whose gradients are
    std::set<const optim::Optimizer*> used_up = {};   ///< whose gradients were stepped with
    double cut_short = 1.0;  ///< by what the gradients of a short group are too small
    bool has_gradients = false;
  };

  bool accumulates() const { return options_.gradient_accumulation_steps > 1; }
  bool needs_finish() const {
    return scaler_.has_value() || position_.cut_short != 1.0 || group_weight_.has_value();
  }
  void weigh_group();
  void end_short_group();
  void begin_group();
  void update(optim::Optimizer& optimizer);
  void note_waiting();
  void drop_since_noted();
  bool agree(bool flag);
  bool backward_synchronizes();
  std::string where() const;
  void update_scale();

  Strategy* strategy_;
  comm::ProcessGroup world_;
  SteppingOptions options_;
  std::optional<optim::GradScaler> scaler_;
  LossGuard guard_;
  std::function<std::string()> where_;
  std::function<void(const optim::Optimizer&)> after_step_;
  std::vector<optim::Optimizer*> optimizers_;

  LossWeights weights_;
  /// Of a group that is complete: by what its gradients are to be divided.
  std::optional<at::Tensor> group_weight_;
  bool weighed_ = false;  ///< group_weight_ is this group's

  GroupPlace place_;
  int64_t batches_ = 0;  ///< of the running group, this one among them
  bool in_batch_ = false;
  bool has_grouped_ = false;
  bool has_recorded_ = false;
  bool synchronizes_ = true;
  int64_t unsynchronized_ = 0;
  Position position_;
  graph::HostPart* recording_ = nullptr;
  bool has_stepped_ = false;  ///< in the recording
  int64_t losses_ = 0;
  bool bad_loss_ = false;          ///< of the coming step, on this rank
  std::optional<bool> leave_out_;  ///< as agreed by the ranks
  /// Gradients that were there before the coming step's first backward, where a step may be left
  /// out: they wait for a later step of their optimizer.
  std::vector<std::pair<at::Tensor, at::Tensor>> waiting_;
  bool has_noted_ = false;
};

}  // namespace levin
