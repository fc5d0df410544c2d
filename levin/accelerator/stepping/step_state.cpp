#include "levin/accelerator/stepping/step_state.h"

#include <fmt/format.h>

namespace levin {

std::string StepState::text() const {
  std::string text = fmt::format("batches {}, losses {}, steps {}", batches, losses, steps);
  place.visit(
      [&](std::string_view what, auto number) { text += fmt::format(", {} {}", what, number); });
  for (const Optimizer& optimizer : optimizers) {
    text += fmt::format(", updates {}, schedule {}{}", optimizer.updates, optimizer.schedule_steps,
                        optimizer.was_skipped ? ", skipped" : "");
    if (!optimizer.plateau.rates.empty()) {
      text += fmt::format(", best {}, bad checks {}, cooldown {}", optimizer.plateau.best,
                          optimizer.plateau.num_bad_epochs, optimizer.plateau.cooldown_counter);
    }
  }
  const auto add = [&](std::string_view what, const auto& value) {
    if (value) text += fmt::format(", {} {}", what, *value);
  };
  add("weights of batches", weighing.weighs);
  add("leaves out", leaves_out);
  for (const auto& [what, is_so] : {std::pair("agreed on weights", weighing.is_agreed),
                                    {"a bad loss", is_bad},
                                    {"updating", is_updating},
                                    {"left out", was_left_out}}) {
    if (is_so) text += fmt::format(", {}", what);
  }
  if (loss_guard.num_losses() > 0) text += fmt::format(", mean loss {}", loss_guard.mean());
  if (scaler) text += fmt::format(", scale {}", scaler->get_scale());
  return text;
}

State StepState::state_dict() const {
  State state;
  if (scaler) state.set("scaler", scaler->state_dict());
  if (loss_guard.is_on()) state.set("loss_guard", loss_guard.state_dict());
  return state;
}

void StepState::load_state_dict(const State& state) {
  AccumulationWindow& window = place.window;
  window = {.size = window.size, .in_batch = window.in_batch, .may_weigh = window.may_weigh};
  place.synchronizes_next = false;
  for (StepPlace::Gradients& gradients : place.optimizers) gradients = {};
  is_bad = wants_rollback = false;
  was_left_out = false;
  if (scaler && state.contains("scaler")) scaler->load_state_dict(state.child("scaler"));
  if (state.contains("loss_guard")) loss_guard.load_state_dict(state.child("loss_guard"));
}

}  // namespace levin
