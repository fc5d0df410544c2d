#pragma once
// Progress: where a training run stands, as its checkpoint keeps it.

#include <chrono>
#include <cstdint>

#include "levin/base/state.h"

namespace levin::detail {

struct Progress {
  int64_t epoch = 0;        ///< epochs completed
  int64_t batch = 0;        ///< batches of the running epoch done
  int64_t global_step = 0;  ///< training steps that updated parameters
  int64_t validated = 0;    ///< value of batch at the last validation in this epoch
  double seconds = 0.0;     ///< spent in training by earlier runs that this one resumes

  State state_dict() const {
    State state;
    state.set("epoch", epoch).set("batch", batch).set("global_step", global_step);
    return std::move(state.set("validated", validated).set("seconds", seconds));
  }
  void load_state_dict(const State& state) {
    epoch = state.integer("epoch");
    batch = state.integer("batch");
    global_step = state.integer("global_step");
    validated = state.integer("validated");
    seconds = state.number("seconds");
  }
};

}  // namespace levin::detail
