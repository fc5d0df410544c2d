#include "levin/trainer/run/run_log.h"

#include <algorithm>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::detail {

namespace {

/// Returns whether values has the metric of that entry, or its values per class.
bool has_name(const State& values, const State& entry) {
  const std::string& name = entry.text("name");
  const std::string first = entry.contains("label_0") ? entry.text("label_0") : "0";
  return values.contains(name) || values.contains(name + "/" + first);
}

/// Returns whether only other ranks logged some metric, so that its value cannot be computed here.
bool lacks_a_metric(const State& values, const std::vector<State>& ranks) {
  for (const State& rank : ranks) {
    for (int64_t i = 0; i < rank.integer("size"); ++i) {
      const State& entry = rank.child(std::to_string(i));
      const bool has_value =
          entry.boolean("is_metric") && entry.boolean("on_epoch") && !entry.child("metric").empty();
      if (has_value && !has_name(values, entry)) return true;
    }
  }
  return false;
}

}  // namespace

RunLog::RunLog(Engine& engine, Progress& progress, std::vector<std::shared_ptr<Logger>> loggers,
               bool off)
    : engine_(engine), progress_(progress), loggers_(std::move(loggers)), off_(off) {
  for (LoggedValues* values : {&train_values_, &epoch_values_, &evaluation_values_}) {
    values->set_rank_zero(engine_.is_main_process());
  }
}

RunLog::~RunLog() {
  for (const auto& logger : loggers_) logger->flush();
}

LoggedValues* RunLog::open() {
  if (off_) return nullptr;
  LEVIN_CHECK(collecting_ != nullptr, "trainer.log",
              "log() was called outside of the hooks that collect values; call it in fit from "
              "on_train_start to on_train_epoch_end, in validation and test from their "
              "on_..._start to on_..._epoch_end, and not in predict");
  return collecting_;
}

void RunLog::begin_batch(LoggedValues& values, int64_t samples) {
  values.begin_step(samples);
  // Steps of an evaluation are no metrics of the run, as in Lightning; what it comes to is.
  if (!off_ && &values == &train_values_) stepped_ = &values;
}

// A name may be logged by training and by validation: the newest value counts.
void RunLog::take_step_values() {
  if (stepped_ == nullptr) return;
  for (const auto& [name, value] : stepped_->take_step_values()) metrics_[name] = value;
}

Metrics RunLog::metrics() {
  take_step_values();
  return metrics_;
}

void RunLog::publish(const std::vector<LoggedValues*>& books) {
  take_step_values();
  stepped_ = nullptr;
  State newest, row, bar;
  Scalars scalars;
  bool lacks = false;
  for (LoggedValues* values : books) {
    std::vector<State> ranks;
    if (engine_.rank().world_size > 1) {
      ranks = engine_.gather_object(values->state_dict());
      values->reset_epoch();
      for (const State& rank : ranks) values->merge(rank);
    }
    for (const auto& [name, value] : values->epoch_values(LogTarget::kCallbacks)) {
      newest.set(name, value);
    }
    lacks = lacks || lacks_a_metric(newest, ranks);
    for (const Scalar& shown : values->epoch_values(LogTarget::kProgressBar)) {
      show(shown);
      bar.set(shown.name, shown.value);
    }
    for (const Scalar& one : values->epoch_values(LogTarget::kLogger)) {
      scalars.push_back(one);
      row.set(one.name, one.value);
    }
  }
  State own;
  own.set("newest", std::move(newest)).set("row", std::move(row)).set("bar", std::move(bar));
  own.set("lacks", lacks);
  const State agreed = agreed_values(own);
  for (const auto& [name, value] : agreed.child("newest").values()) {
    metrics_[name] = agreed.child("newest").number(name);
  }
  for (const auto& [name, value] : agreed.child("bar").values()) {
    if (!own.child("bar").contains(name)) show({name, agreed.child("bar").number(name)});
  }
  results_.clear();
  for (const auto& [name, value] : agreed.child("row").values()) {
    results_[name] = agreed.child("row").number(name);
    if (!own.child("row").contains(name)) scalars.push_back({name, results_[name]});
  }
  if (!silent_) write(scalars, progress_.global_step);
}

/// Rank 0's, since another rank may have had no batch at all. Where it is rank 0 that had none, a metric
/// that it never saw is computed where it was logged: the first rank's that has one.
State RunLog::agreed_values(const State& own) {
  State agreed = engine_.broadcast_object(own);
  if (!agreed.boolean("lacks")) return agreed;
  const std::vector<State> ranks = engine_.gather_object(own);
  for (const char* kind : {"newest", "row", "bar"}) {
    State all;
    for (const State& rank : ranks) {
      for (const auto& [name, value] : rank.child(kind).values()) {
        if (!all.contains(name)) all.set(name, value);
      }
    }
    agreed.set(kind, std::move(all));
  }
  return agreed;
}

void RunLog::show(const Scalar& scalar) {
  const auto place = std::find_if(bar_values_.begin(), bar_values_.end(),
                                  [&](const Scalar& old) { return old.name == scalar.name; });
  if (place == bar_values_.end()) {
    bar_values_.push_back(scalar);
  } else {
    place->value = scalar.value;
  }
}

void RunLog::write(const Scalars& row, int64_t step) const {
  if (row.empty()) return;
  for (const auto& logger : loggers_) logger->log_metrics(row, progress_.current_epoch(), step);
}

void RunLog::sync_step(LoggedValues& values) {
  if (engine_.rank().world_size == 1) return;
  values.sync_step([this](const State& own) { return engine_.gather_object(own); });
}

void RunLog::write_row(bool on_all_ranks) {
  if (off_) return;
  if (on_all_ranks) sync_step(train_values_);
  for (const Scalar& shown : train_values_.step_values(LogTarget::kProgressBar)) show(shown);
  Scalars row = train_values_.step_values(LogTarget::kLogger);
  row.insert(row.end(), pending_.begin(), pending_.end());
  pending_.clear();
  write(row, progress_.global_step);
}

void RunLog::write_evaluation_row() {
  if (silent_ || off_) return;
  const int64_t batch = progress_.evaluated++;
  sync_step(evaluation_values_);
  write(evaluation_values_.step_values(LogTarget::kLogger), batch);
}

void RunLog::log_metrics(const Scalars& scalars) {
  for (const auto& [name, value] : scalars) metrics_[name] = value;
  pending_.insert(pending_.end(), scalars.begin(), scalars.end());
}

void RunLog::log_row(const Scalars& scalars) {
  for (const auto& [name, value] : scalars) metrics_[name] = value;
  write(scalars, progress_.global_step);
}

void RunLog::finalize(std::string_view status) {
  for (const auto& logger : loggers_) {
    try {
      logger->finalize(status);
    } catch (const std::exception& error) {
      log::error("trainer: a logger failed at the end of the run: {}", error.what());
    }
  }
}

void RunLog::be_silent(bool silent) {
  if (silent_ && !silent) {
    metrics_.clear();
    bar_values_.clear();
  }
  silent_ = silent;
}

}  // namespace levin::detail
