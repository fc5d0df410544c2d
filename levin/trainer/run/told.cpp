#include "levin/trainer/run/told.h"

#include <algorithm>
#include <string>
#include <vector>

#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/trainer/callbacks/callbacks.h"

namespace levin::detail {
namespace {

void add_names(const LoggedValues& values, std::vector<std::string>& names) {
  const State state = values.state_dict();
  for (int64_t i = 0; i < state.integer("size"); ++i) {
    const State& entry = state.child(std::to_string(i));
    const std::string name = entry.text("name");
    const std::string of_loader = entry.contains("loader")
                                      ? "/dataloader_idx_" + std::to_string(entry.integer("loader"))
                                      : "";
    names.push_back(name + of_loader);
    if (!entry.boolean("on_step") || !entry.boolean("on_epoch")) continue;
    names.push_back(name + "_step" + of_loader);
    names.push_back(name + "_epoch" + of_loader);
  }
}

std::string monitor_of(const Callback& callback) {
  if (const auto* one = dynamic_cast<const EarlyStopping*>(&callback)) return one->monitor();
  if (const auto* one = dynamic_cast<const ModelCheckpoint*>(&callback)) return one->monitor();
  return "";
}

}  // namespace

void warn_of_intervals(const TrainerOptions& options, const Limits& limits, bool has_validation) {
  if (!has_validation || limits.max_epochs < 0 || limits.val_epochs <= limits.max_epochs) return;
  log::warn(
      "trainer: check_val_every_n_epoch = {}, but the run has {} epochs, so it never validates; "
      "lower --check-val-every-n-epoch",
      limits.val_epochs, limits.max_epochs);
}

void warn_of_no_validation(const Limits& limits, int64_t batches) {
  log::warn(
      "trainer: val_check_interval = {}, but the epoch had {} batches, so it was not validated; "
      "lower --val-check-interval",
      limits.val_interval, batches);
}

void warn_of_monitors(const Listeners& listeners, RunLog& log) {
  std::vector<std::string> names;
  for (const auto& [name, value] : log.metrics_before_step()) names.push_back(name);
  for (const LoggedValues* values :
       {&log.train_values(), &log.epoch_values(), &log.evaluation_values()}) {
    add_names(*values, names);
  }
  for (const auto& callback : listeners.all()) {
    const std::string monitor = monitor_of(*callback);
    if (monitor.empty() || std::ranges::count(names, monitor) > 0) continue;
    const auto close = nearest(monitor, names);
    if (!close) continue;
    log::warn(
        "{}: nothing named '{}' has been logged so far, but '{}' has; check the monitor's name",
        callback->state_key(), monitor, *close);
  }
}

}  // namespace levin::detail
