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

#include "levin/accelerator/loss_guard.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/graph/compiled.h"
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
};

class LEVIN_API Stepping {
 public:
  /// The strategy must outlive it. Throws Error "accelerator.accumulate",
  /// "accelerator.loss.policy" and "optim.scaler.options".
  Stepping(Strategy& strategy, const comm::ProcessGroup& world, const SteppingOptions& options);
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

  /// An optimizer whose steps these are; must outlive this, or be forgotten.
  void add(optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  void forget();

  /// The next batch of a group; the last one's gradients agree over the ranks and are stepped with.
  /// ends_epoch: it is the last of the epoch, and of its group however small that is.
  void begin_batch(bool ends_epoch);
  void end_batch() { in_batch_ = false; }
  /// Whether this batch ends a group; true outside of all batches.
  bool sync_gradients() const { return !in_batch_ || synchronizes_; }
  int64_t accumulation_steps() const { return options_.gradient_accumulation_steps; }
  /// Until left as often, gradients of this rank stay its own.
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

  /// judged: the loss as it was computed, at which the loss guard looks.
  void backward(const at::Tensor& loss, bool synchronize, const at::Tensor& judged);
  /// What backward does first; for a rank that makes the others' steps without a loss of its own.
  void begin_backward();
  /// Makes the optimizer's gradients those of its batches: waits for the ranks', divides by the
  /// loss scale, and weighs a group that the epoch's end cut short. Once a step; step() does it
  /// too.
  void finish_gradients(const optim::Optimizer& optimizer);
  /// False where it was left out: inside a group of batches, after an overflow, for a bad loss.
  /// Throws Error "accelerator.step" between the batches of a group.
  bool step(optim::Optimizer& optimizer);
  /// The last step() of some optimizer was.
  bool was_left_out() const { return position_.was_left_out; }
  /// The gradients since the last step will not be stepped with.
  void drop_gradients() { bad_loss_ = has_noted_ = false; }
  /// Unless the gradients still wait for the other batches of their group.
  void zero_grad(optim::Optimizer& optimizer);

  void clip_grad_norm(const optim::Optimizer& optimizer, double max_norm);
  bool moves_schedules() const { return options_.step_scheduler_with_optimizer; }

  /// For its time steps are recorded, to be replayed.
  class LEVIN_API RecordingScope {
   public:
    RecordingScope(Stepping& stepping, graph::Recording& recording);
    ~RecordingScope();
    RecordingScope(const RecordingScope&) = delete;
    RecordingScope& operator=(const RecordingScope&) = delete;

   private:
    Stepping& stepping_;
  };
  /// While a step is being recorded; else nullptr.
  graph::Recording* recording() const { return recording_; }
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
  };

  bool accumulates() const { return options_.gradient_accumulation_steps > 1; }
  bool needs_finish() const { return scaler_.has_value() || position_.cut_short != 1.0; }
  void end_short_group();
  void begin_group();
  void update(optim::Optimizer& optimizer);
  void note_waiting();
  void drop_since_noted();
  bool agree(bool flag);
  bool backward_synchronizes();
  std::string where() const;
  void update_scale();

  Strategy& strategy_;
  comm::ProcessGroup world_;
  SteppingOptions options_;
  std::optional<optim::GradScaler> scaler_;
  LossGuard guard_;
  std::function<std::string()> where_;
  std::function<void(const optim::Optimizer&)> after_step_;
  std::vector<optim::Optimizer*> optimizers_;

  int64_t batches_ = 0;  ///< of the running group, this one among them
  bool in_batch_ = false;
  bool has_grouped_ = false;
  bool has_recorded_ = false;
  bool synchronizes_ = true;
  int64_t unsynchronized_ = 0;
  Position position_;
  graph::Recording* recording_ = nullptr;
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
