#pragma once
// Stepping: the program of a training step, from a loss to updated parameters. The Trainer and loops of one's own call
// its phases in the order in which they stand here and in stepping.cpp:
//
//   begin_batch   backward   window_counts   finish_gradients   clip_gradients   step   end_window   end_batch
//
// A phase changes the StepState on the host, in every step. Its tensors are computed at once, or recorded and
// replayed with those of the other phases (accelerator/compiled), or are a program of XLA's (strategy/xla).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/accelerator/stepping/loss_guard.h"
#include "levin/accelerator/stepping/loss_weights.h"
#include "levin/accelerator/stepping/step_state.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/graph/compile/compiled.h"
#include "levin/optim/grad_scaler.h"
#include "levin/optim/learning_rate.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/strategy.h"

namespace levin {

struct SteppingOptions {
  int64_t gradient_accumulation_steps = 1;
  bool sync_each_batch = false;  ///< gradients agree after each batch of a window too
  bool step_scheduler_with_optimizer = true;
  bool scales_loss = false;
  optim::GradScalerOptions scaler = {};
  LossGuardOptions loss_guard = {};
  at::Device device = at::kCPU;
  bool records = false;  ///< steps may be recorded
  /// The loss guard calls a batch so; none: by its number.
  std::function<std::string()> where = {};
  /// Called after each step that was taken, not after one that was replayed.
  std::function<void(const optim::Optimizer&)> after_step = {};
};

/// The place of a batch in its accumulation window.
struct WindowPlace {
  int64_t window_size =
      1;  ///< batches of its accumulation window; at most so many, where ends_epoch comes first
  bool ends_epoch = false;  ///< it is the last of the epoch, and so of its window
  bool may_weigh = false;   ///< batches may have weights: the ranks ask each other
  /// Divides the loss in place of window_size: of a part of a batch, which is one of several sizes.
  std::optional<double> divisor = {};
};

class LEVIN_API Stepping {
 public:
  /// The strategy must outlive it. Throws Error "accelerator.accumulate",
  /// "accelerator.loss.policy" and "optim.scaler.options".
  Stepping(Strategy& strategy, const comm::ProcessGroup& world, const SteppingOptions& options);
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

  /// An optimizer whose steps these are, with its schedule (or nullptr); must outlive this, or begin_anew comes first.
  /// Returns its number in StepState.
  size_t add(optim::Optimizer& optimizer, optim::LearningRate* schedule);
  /// For other modules, and their optimizers.
  void begin_anew(Strategy& strategy, bool sync_each_batch);

  // The program of a step.

  /// The next batch of a window; the last one's gradients agree over the ranks and are stepped with.
  void begin_batch(const WindowPlace& place);
  /// This batch's loss counts for so much in its window: see LossWeights.
  void set_loss_weight(at::Tensor weight) { weights_.set(std::move(weight)); }
  /// Returns whether the loss is one to go backward from; not where its weight is 0.
  bool gives_gradients(const at::Tensor& loss) {
    return loss.defined() && !weights_.batch_counts_nothing();
  }
  /// Throws Error "accelerator.loss.stop", and what Strategy::backward throws.
  void backward(const at::Tensor& loss, bool synchronize);
  /// Call it instead of a synchronizing backward if this rank's batch gives no gradients. Throws
  /// the errors of Strategy::backward.
  void join_exchange();
  /// The beginning of backward; for a rank that makes the others' steps without a loss of its own.
  void begin_backward();
  /// Returns whether a window that is complete has anything to step with; false where the weights of all its
  /// batches are 0. All ranks call it.
  bool window_counts();
  /// Makes the optimizer's gradients those of its batches: waits for the ranks', divides by the
  /// loss scale and by the window's weight, and weighs a window that the epoch's end cut short. Once
  /// a step; step() does it too.
  void finish_gradients(const optim::Optimizer& optimizer);
  void clip_grad_norm(const optim::Optimizer& optimizer, double max_norm);
  /// Lightning's function of that name: algorithm is "norm" or "value"; 0 is off.
  void clip_gradients(const optim::Optimizer& optimizer, double clip_val,
                      std::string_view algorithm);
  /// Updates the parameters, counts and moves the schedule. False where it was left out: inside a window, after an
  /// overflow, for a bad loss. Throws Error "accelerator.step" between the batches of a window.
  bool step(optim::Optimizer& optimizer);
  /// Unless the gradients still wait for the other batches of their window.
  void zero_grad(optim::Optimizer& optimizer);
  /// Call it after the steps of a window, with the result of window_counts().
  void end_window(bool counts);
  void end_batch() { state_.place.window.in_batch = false; }
  /// The next batch begins a window. The gradients since the last step are not stepped with.
  void drop_window();

  /// For an optimizer that computes the loss itself in a step. Throws Error "optim.closure" where
  /// steps are made of more than one loss, or may be left out.
  void check_closure(const optim::Optimizer& optimizer) const;
  /// Call it after each of the optimizer's evaluations: gradients then agree. Returns the mean of
  /// the ranks' losses.
  at::Tensor finish_evaluation(const at::Tensor& loss);
  /// Moves the schedule of that optimizer on, beside what step() does. Throws Error
  /// "optim.schedule.value" for a schedule that follows a monitored value.
  void step_schedule(size_t optimizer);
  /// Gives that optimizer's schedule the value that it follows: rank 0's, on all ranks. Throws Error
  /// "optim.schedule.value" for a schedule that follows none.
  void check_plateau(size_t optimizer, double value);
  /// Does so for each schedule whose check is due: after so many epochs, or, without a number, after
  /// the optimizer's last step. value returns what a schedule follows; nothing: this check is left out.
  void check_due_plateaus(std::optional<int64_t> epochs,
                          const std::function<std::optional<double>(const PlateauOptions&)>& value);
  /// So many epochs have ended: schedules by epoch go there.
  void end_epoch(int64_t epochs);

  // The present state.

  const StepState& state() const { return state_; }
  /// A copy to go back to, with the place of random generators.
  StepState snapshot() const;
  /// Goes back to a snapshot of this object, after which no parameter was updated.
  void restore(const StepState& snapshot);
  State state_dict();
  /// Begins a window: gradients are not saved, and present ones belong to an earlier window.
  void load_state_dict(const State& state);
  /// The counts of an optimizer that a checkpoint holds.
  void load_counts(size_t optimizer, int64_t updates, int64_t schedule_steps,
                   optim::Plateau plateau);

  /// Returns whether this batch ends a window; true outside of all batches.
  bool sync_gradients() const {
    return !state_.place.window.in_batch || state_.place.window.is_complete;
  }
  /// Other ranks wait for what this batch gives, or for join_exchange() in its place.
  bool is_awaited() const { return sync_gradients() && context_.world.size() > 1; }
  /// Returns whether a batch of this window, or at its end one of another rank, has given gradients.
  bool has_gradients() const { return state_.place.window.has_gradients; }
  int64_t accumulation_steps() const { return context_.options.gradient_accumulation_steps; }
  /// Sets the batches of later windows.
  void set_accumulation_steps(int64_t steps) {
    context_.options.gradient_accumulation_steps = steps;
  }
  bool moves_schedules() const { return context_.options.step_scheduler_with_optimizer; }
  const optim::GradScaler* scaler() const { return state_.scaler ? &*state_.scaler : nullptr; }
  /// Between the two, which may be nested, gradients are not exchanged.
  void enter_no_sync() { ++state_.place.no_sync; }
  void leave_no_sync() { --state_.place.no_sync; }
  /// The next backward's gradients agree over the ranks, with what was added up before, wherever it
  /// is.
  void synchronize_next() { state_.place.synchronizes_next = true; }
  void set_where(std::function<std::string()> where) { context_.options.where = std::move(where); }

  // Steps that are recorded and replayed.

  /// The recorded step did this on the host, beside the user's code: a replay does it again.
  struct Outcome {
    struct Update {
      size_t optimizer = 0;
      optim::Moved moved = {};
      std::vector<size_t> written =
          {};  ///< parameters that the user's code wrote after its last step
    };
    StepPlace place = {};  ///< place of the engine after the step
    int64_t losses = 0;
    int64_t steps = 0;
    std::vector<Update> updates = {};
    std::vector<size_t> schedules = {};  ///< optimizers whose step_schedule() was called, each time
  };
  /// For its time steps are recorded, to be replayed.
  class LEVIN_API RecordingScope {
   public:
    RecordingScope(Stepping& stepping, graph::HostPart& recording);
    ~RecordingScope();
    RecordingScope(const RecordingScope&) = delete;
    RecordingScope& operator=(const RecordingScope&) = delete;

   private:
    friend class Stepping;
    Stepping& stepping_;
    graph::HostPart& host_part_;
    Outcome outcome_;
    std::set<size_t> moved_schedules_;  ///< numbers of their optimizers
  };
  /// While a step is being recorded; else nullptr.
  graph::HostPart* recording() const {
    return recording_ == nullptr ? nullptr : &recording_->host_part_;
  }
  /// A step asks for a number that steps change; what it does may depend on it.
  void reads(const char* what, std::function<graph::ExactNumber()> number) const;
  /// Call it before a call that may be a replay: tensors that a recorded step reads get this call's
  /// numbers.
  void before_replay();

 private:
  struct Context {
    Strategy* strategy;
    comm::ProcessGroup world;
    SteppingOptions options;
  };
  struct Driven {
    optim::Optimizer* optimizer;
    optim::LearningRate* schedule;
    bool is_prepared = true;  ///< not by an earlier prepare
  };

  bool accumulates() const { return accumulation_steps() > 1; }
  Strategy& strategy() const { return *context_.strategy; }
  size_t number_of(const optim::Optimizer& optimizer) const;
  template <class Call>
  void for_each_optimizer(const Call& call) const {
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      if (optimizers_[i].is_prepared) call(*optimizers_[i].optimizer, i);
    }
  }
  void end_short_window();
  void note_waiting();
  void drop_since_noted();
  bool backward_synchronizes();
  void weigh_window();
  bool needs_finish() const;
  bool leaves_out();
  void update(optim::Optimizer& optimizer);
  void count_update(size_t optimizer);
  void move_schedule(size_t optimizer);
  void set_rates(size_t optimizer);
  void update_scale();
  void replayed(const Outcome& outcome);
  bool agree(bool flag);
  std::string where() const;

  Context context_;
  StepState state_;
  std::vector<Driven> optimizers_;  ///< by their number in the state
  LossWeights weights_;
  /// Gradients that were there before the coming step's first backward, where a step may be left
  /// out: they wait for a later step of their optimizer.
  std::vector<std::pair<at::Tensor, at::Tensor>> waiting_;
  RecordingScope* recording_ = nullptr;
};

/// A batch of an accumulation window, for the time of the object.
class WindowScope {
 public:
  WindowScope(Stepping& stepping, const WindowPlace& place) : stepping_(stepping) {
    stepping_.begin_batch(place);
  }
  ~WindowScope() { stepping_.end_batch(); }
  WindowScope(const WindowScope&) = delete;
  WindowScope& operator=(const WindowScope&) = delete;

 private:
  Stepping& stepping_;
};

}  // namespace levin
