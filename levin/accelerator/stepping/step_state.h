#pragma once
// StepState: what a training step changes on the host, beside tensors. A value: the engine has one, and going back is
// an assignment of a copy: after a step that threw, or when a checkpoint is loaded. A replay that is given up has not
// changed it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/accelerator/stepping/loss_guard.h"
#include "levin/accelerator/stepping/random_place.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/optim/grad_scaler.h"
#include "levin/optim/learning_rate.h"

namespace levin {

/// The batches whose gradients make one step of the optimizers. Without gradient accumulation each batch is one.
struct AccumulationWindow {
  int64_t size = 1;  ///< batches of it; at most so many, where the epoch ends before
  std::optional<double> divisor = {};  ///< divides this batch's loss, if not size does
  bool in_batch = false;               ///< one of its batches is under way
  bool is_complete = true;             ///< the newest batch is its last
  bool may_weigh = false;              ///< batches may have weights: the ranks ask each other
  bool has_gradients = false;
  bool is_weighed = false;  ///< the gradients were divided by the weights of all its batches
  double cut_short = 1.0;   ///< by what the gradients of a short window are too small

  bool operator==(const AccumulationWindow&) const = default;
};

/// The part that decides which operators a step runs. A step that is replayed from an equal place does what was
/// recorded, and leaves the place that the recording left: that is all a recording needs to know of the engine.
struct LEVIN_API StepPlace {
  /// The gradients of one optimizer.
  struct Gradients {
    bool are_finished = false;  ///< unscaled and weighed
    bool are_used_up = false;   ///< stepped with

    bool operator==(const Gradients&) const = default;
  };

  AccumulationWindow window = {};
  int64_t no_sync = 0;             ///< scopes of no_sync that are open
  bool synchronizes_next = false;  ///< trigger_sync_in_backward
  std::vector<Gradients> optimizers = {};

  bool operator==(const StepPlace&) const = default;
  /// Calls visit(what, number) for each field.
  template <class Visit>
  void visit(const Visit& visit) const {
    visit("batches of the accumulation window", window.size);
    visit("the divisor of the loss", window.divisor.value_or(0.0));
    visit("whether it is a batch of an accumulation window", window.in_batch);
    visit("whether the batch ends its accumulation window", window.is_complete);
    visit("whether batches may have weights", window.may_weigh);
    visit("whether there are gradients of the accumulation window", window.has_gradients);
    visit("whether gradients are weighed", window.is_weighed);
    visit("the factor for the gradients of an incomplete accumulation window", window.cut_short);
    visit("no_sync", no_sync);
    visit("trigger_sync_in_backward", synchronizes_next);
    for (const Gradients& gradients : optimizers) {
      visit("whether gradients are complete", gradients.are_finished);
      visit("whether gradients were stepped with", gradients.are_used_up);
    }
  }
};

struct LEVIN_API StepState {
  struct Optimizer {
    int64_t updates = 0;
    int64_t schedule_steps = 0;   ///< steps, epochs or checks that its schedule has counted
    optim::Plateau plateau = {};  ///< of a schedule that follows a monitored value
    bool was_skipped = false;     ///< the last step() changed no parameter

    bool operator==(const Optimizer&) const = default;
  };
  /// The answer to whether batches have weights, and whether the ranks agree on it.
  struct Weighing {
    std::optional<bool> weighs = {};  ///< batches have weights; unset: none has come yet
    bool is_agreed = false;           ///< by the ranks

    bool operator==(const Weighing&) const = default;
  };

  StepPlace place = {};
  int64_t batches = 0;  ///< batches of the running window, the present one included
  int64_t losses = 0;   ///< backwards so far
  int64_t steps = 0;    ///< windows that the Trainer has stepped with
  int64_t calls = 0;    ///< calls of step() with a complete window
  bool has_windows = false;
  bool has_recorded = false;
  std::vector<Optimizer> optimizers = {};
  bool is_updating = false;   ///< parameters change at this moment
  bool was_left_out = false;  ///< the last step() of some optimizer was
  Weighing weighing = {};
  LossGuard loss_guard = LossGuard();
  bool is_bad = false;          ///< a loss of the coming step, on this rank
  bool wants_rollback = false;  ///< a loss since the last rollback asks for one, on this rank
  std::optional<bool> leaves_out = {};           ///< the coming step, as agreed by the ranks
  std::optional<optim::GradScaler> scaler = {};  ///< scaler of 16-mixed
  std::optional<RandomPlace> random = {};        ///< set in a snapshot to go back to

  bool operator==(const StepState&) const = default;
  /// A line for people.
  std::string text() const;
  /// The state that a run needs to resume between two windows: {"scaler", "loss_guard"}. Counts of
  /// updates and schedules are saved with their optimizers.
  State state_dict() const;
  /// Begins a window, with the counts and the scale of that state.
  void load_state_dict(const State& state);
};

}  // namespace levin
