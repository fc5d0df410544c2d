// What a run logs, and who reads it: loggers, progress bar, callbacks.

#include <algorithm>

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

LoggedValues* Run::logged() {
  if (options_.barebones) return nullptr;
  LEVIN_CHECK(logged_ != nullptr, "trainer.log",
              "log() was called where nothing is collected; in fit call it from on_train_start to "
              "on_train_epoch_end, in validation and test from their on_..._start to "
              "on_..._epoch_end, in predict not at all");
  return logged_;
}

void Run::begin_values(LoggedValues& values, int64_t samples) {
  values.begin_step(samples);
  // Steps of an evaluation are no metrics of the run, as in Lightning; what it comes to is.
  if (!options_.barebones && &values == &train_values_) stepped_ = &values;
}

// A name may be logged by training and by validation: the newest value counts.
void Run::take_step_values() {
  if (stepped_ == nullptr) return;
  for (const auto& [name, value] : stepped_->take_step_values()) metrics_[name] = value;
}

Metrics Run::callback_metrics() {
  take_step_values();
  return metrics_;
}

// What an epoch's values are over all ranks; what they read is one row.
void Run::publish(const std::vector<LoggedValues*>& books) {
  take_step_values();
  stepped_ = nullptr;
  State newest, row;
  Scalars scalars;
  for (LoggedValues* values : books) {
    if (accelerator_.rank().world_size > 1) {
      const std::vector<State> ranks = accelerator_.gather_object(values->state_dict());
      values->reset_epoch();
      for (const State& rank : ranks) values->merge(rank);
    }
    for (const auto& [name, value] : values->epoch_values(LogTarget::kCallbacks)) {
      newest.set(name, value);
    }
    for (const Scalar& shown : values->epoch_values(LogTarget::kProgressBar)) show(shown);
    for (const Scalar& one : values->epoch_values(LogTarget::kLogger)) {
      scalars.push_back(one);
      row.set(one.name, one.value);
    }
  }
  State agreed;  // rank 0's: another may have had no batch at all
  agreed.set("newest", std::move(newest)).set("row", std::move(row));
  agreed = accelerator_.broadcast_object(agreed);
  for (const auto& [name, value] : agreed.child("newest").values()) {
    metrics_[name] = agreed.child("newest").number(name);
  }
  results_.clear();
  for (const auto& [name, value] : agreed.child("row").values()) {
    results_[name] = agreed.child("row").number(name);
  }
  if (scalars.empty() || sanity_checking_) return;
  for (const auto& logger : loggers_) {
    logger->log_metrics(scalars, progress_.epoch, progress_.global_step);
  }
}

void Run::show(const Scalar& scalar) {
  const auto place = std::find_if(bar_values_.begin(), bar_values_.end(),
                                  [&](const Scalar& old) { return old.name == scalar.name; });
  if (place == bar_values_.end()) {
    bar_values_.push_back(scalar);
  } else {
    place->value = scalar.value;
  }
}

void Run::write_row() {
  if (options_.barebones) return;
  for (const Scalar& shown : train_values_.step_values(LogTarget::kProgressBar)) show(shown);
  Scalars row = train_values_.step_values(LogTarget::kLogger);
  row.insert(row.end(), pending_scalars_.begin(), pending_scalars_.end());
  pending_scalars_.clear();
  if (row.empty()) return;
  for (const auto& logger : loggers_) {
    logger->log_metrics(row, progress_.epoch, progress_.global_step);
  }
}

// Of each batch that logs with on_step, counted over all validations of the run, as in Lightning.
void Run::write_evaluation_row() {
  if (sanity_checking_ || options_.barebones) return;
  const int64_t batch = progress_.evaluated++;
  const Scalars row = evaluation_values_.step_values(LogTarget::kLogger);
  if (row.empty()) return;
  for (const auto& logger : loggers_) logger->log_metrics(row, progress_.epoch, batch);
}

void Run::log_metrics(const Scalars& scalars) {
  for (const auto& [name, value] : scalars) metrics_[name] = value;
  pending_scalars_.insert(pending_scalars_.end(), scalars.begin(), scalars.end());
}

void Run::log_row(const Scalars& scalars) {
  for (const auto& [name, value] : scalars) metrics_[name] = value;
  for (const auto& logger : loggers_) {
    logger->log_metrics(scalars, progress_.epoch, progress_.global_step);
  }
}

}  // namespace levin::detail
