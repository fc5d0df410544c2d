// Learning rate schedules that follow epochs and monitored values, in the order of Lightning's loops.

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/trainer/run.h"

namespace levin::detail {

// Lightning moves these before the epoch's validation, so that a checkpoint saved at its end has the
// rates of the next epoch. An epoch that ends before its last batch moves them at its end. The count
// of epochs is set and not raised, so a second call changes nothing.
void Run::move_schedules_by_epoch() { engine_.stepping().end_epoch(progress_.epoch + 1); }

// Called when the epoch's values are published, before a checkpoint is saved from which a run begins
// the next epoch.
void Run::check_plateaus_by_epoch() {
  engine_.stepping().check_due_plateaus(
      progress_.epoch + 1, [this](const PlateauOptions& plateau) { return value_for(plateau); });
}

// Called between steps, after the validation that is due there.
void Run::check_plateaus_by_step() {
  if (progress_.batch == 0 || !at_step_boundary()) return;
  engine_.stepping().check_due_plateaus(
      std::nullopt, [this](const PlateauOptions& plateau) { return value_for(plateau); });
}

std::optional<double> Run::value_for(const PlateauOptions& plateau) {
  if (plateau.strict || log_.metrics().contains(plateau.monitor)) return monitored(plateau.monitor);
  log::warn(
      "trainer: reduce_on_plateau follows '{}', which was not logged so far; this check is left "
      "out",
      plateau.monitor);
  return std::nullopt;
}

double Run::monitored(const std::string& name) {
  const Metrics metrics = log_.metrics();
  const auto found = metrics.find(name);
  if (found != metrics.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [logged, value] : metrics) names.push_back(logged);
  const auto close = nearest(name, names);
  LEVIN_FAIL("trainer.monitor", "nothing named '{}' was logged, only [{}]; {}", name,
             to_text(names),
             close ? fmt::format("did you mean '{}'?", *close)
                   : "log it in a step, or monitor one of these");
}

}  // namespace levin::detail
