// Failures of a run: when a step, a hook or a loader throws, it says where and why, and goes back to between two steps.

#include <torch/nn/module.h>

#include "levin/accelerator/stepping/half_on_cpu.h"
#include "levin/accelerator/stepping/out_of_memory.h"
#include "levin/base/log.h"
#include "levin/trainer/run.h"

namespace levin::detail {

// A step that threw, and the batches of its accumulation window before it, leave no state to go on from.
void Run::undo_step() {
  const bool is_updating = engine_.stepping().state().is_updating;
  if (!boundary_ || is_updating || at_step_boundary() || gradients_wait()) return;
  if (!boundary_->go_back(progress_, num_updates())) return;
  in_step_ = false;
}

void Run::note_where_it_failed() const {
  std::string place = loading_.empty() ? place_.text() : loading_;
  if (!place.empty()) note_place(std::move(place));
}

// LibTorch's own errors say nothing of the precision that a dtype comes from, or the batch that took the
// memory.
void Run::explain(const std::exception& error) const {
  if (dynamic_cast<const Error*>(&error) != nullptr) return;
  const std::string hint = half_hint(engine_.precision(), error.what());
  if (!hint.empty()) log::error("trainer: {}", hint);
  const std::string of_memory = engine_.memory_hint(error);
  if (!of_memory.empty()) log::error("{}", of_memory);
}

// A Tuner tries a size of batches that does not fit, and goes on with another.
bool Run::is_expected(const std::exception& error) const {
  return expects_out_of_memory_ && is_out_of_memory(error);
}

void Run::report(const std::exception& error) {
  if (!is_expected(error)) {
    note_where_it_failed();
    explain(error);
  }
  undo_step();
  end_saves();
  listeners_.tell_of_exception(error);
  tell_data_of_exception(error);
  log_.finalize("failed");
}

void Run::tell_data_of_exception(const std::exception& error) {
  try {
    if (data_module_) data_module_->on_exception(error);
  } catch (const std::exception& second) {
    log::error("trainer: on_exception of the data module failed too: {}", second.what());
  }
}

// A save that is being written behind a run that fails is kept where nobody else has a part in it.
void Run::end_saves() {
  try {
    if (engine_.num_processes() > 1) return engine_.saves().drop();
    engine_.finish_saves();
  } catch (const std::exception& error) {
    log::error("trainer: {}", error.what());
  }
}

}  // namespace levin::detail
