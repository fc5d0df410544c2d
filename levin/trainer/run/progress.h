#pragma once
// Progress: where a training run stands, as its checkpoint keeps it.

#include <chrono>
#include <cstdint>

#include "levin/base/state.h"

namespace levin::detail {

struct Progress {
  int64_t epoch = 0;            ///< epochs completed
  bool in_epoch = false;        ///< an epoch has begun and not ended
  int64_t batch = 0;            ///< batches of the running epoch done
  int64_t global_step = 0;      ///< training steps that updated parameters
  int64_t validated = 0;        ///< value of batch at the last validation in this epoch
  int64_t batches_before = 0;   ///< batches of the epochs before this one
  int64_t total_validated = 0;  ///< value of total_batches() at the last validation
  int64_t evaluated = 0;        ///< batches of all validations
  int64_t rollbacks = 0;        ///< returns to a checkpoint after a bad loss
  double seconds = 0.0;         ///< spent in training by earlier runs that this one resumes
  /// A checkpoint is of the next epoch's beginning while the hooks of the last epoch still run. Not
  /// saved.
  bool ending = false;

  /// Returns the epoch as hooks, callbacks and loggers see it.
  int64_t current_epoch() const { return ending ? epoch - 1 : epoch; }
  /// Returns the training batches of all epochs.
  int64_t total_batches() const { return batches_before + batch; }

  void begin_next_epoch() {
    ++epoch;
    in_epoch = false;
    batches_before += batch;
    batch = validated = 0;
  }

  State state_dict() const {
    State state;
    state.set("epoch", epoch).set("batch", batch).set("global_step", global_step);
    state.set("in_epoch", in_epoch).set("evaluated", evaluated);
    state.set("batches_before", batches_before).set("total_validated", total_validated);
    state.set("rollbacks", rollbacks);
    return std::move(state.set("validated", validated).set("seconds", seconds));
  }
  /// Throws Error "trainer.checkpoint" for numbers that no run has.
  void load_state_dict(const State& state);
};

}  // namespace levin::detail
