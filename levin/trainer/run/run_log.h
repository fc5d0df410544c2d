#pragma once
// RunLog: what a run logs, and who reads it: loggers, progress bar, callbacks.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/observe/logger.h"
#include "levin/trainer/run/progress.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

class RunLog {
 public:
  /// loggers: rank 0's, none elsewhere. off: nothing is collected.
  RunLog(Engine& engine, Progress& progress, std::vector<std::shared_ptr<Logger>> loggers,
         bool off);
  /// Writes what loggers still hold.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  LoggedValues& train_values() { return train_values_; }
  LoggedValues& epoch_values() { return epoch_values_; }
  LoggedValues& evaluation_values() { return evaluation_values_; }

  /// Sets where Module::log goes from now on; nullptr: nowhere. Returns where it went before.
  LoggedValues* collect_in(LoggedValues* values) { return std::exchange(collecting_, values); }
  LoggedValues* collecting() const { return collecting_; }
  /// For Module::log. Throws Error "trainer.log" where nothing is collected.
  LoggedValues* open();
  /// A batch of so many samples begins, whose values go there.
  void begin_batch(LoggedValues& values, int64_t samples);

  /// Publishes an epoch's values over all ranks: metrics, the bar's values and one row.
  void publish(const std::vector<LoggedValues*>& books);
  /// on_all_ranks: they all call it now, and values with sync_dist are reduced.
  void write_row(bool on_all_ranks);
  /// Writes the row of an evaluation batch that logs with on_step; counted over the run, as in
  /// Lightning.
  void write_evaluation_row();
  /// Values to go with the next row, or as a row of their own.
  void log_metrics(const Scalars& scalars);
  void log_row(const Scalars& scalars);
  /// Tells the loggers how the run ended. An error of theirs is reported and does not end the run.
  void finalize(std::string_view status);
  /// Logs nothing for the time of a check.
  void be_silent(bool silent);

  /// The newest value of each name, whoever logged it.
  Metrics metrics();
  /// The same but for what was logged in this step.
  const Metrics& metrics_before_step() const { return metrics_; }
  void set_metric(const std::string& name, double value) { metrics_[name] = value; }
  /// Returns the values of the last epoch's end, as loggers got them.
  const Metrics& results() const { return results_; }
  const Scalars& bar_values() const { return bar_values_; }
  const std::vector<std::shared_ptr<Logger>>& loggers() const { return loggers_; }

 private:
  void take_step_values();
  void sync_step(LoggedValues& values);
  State agreed_values(const State& own);
  void show(const Scalar& scalar);
  void write(const Scalars& row, int64_t step) const;

  Engine& engine_;
  Progress& progress_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  bool off_;
  bool silent_ = false;

  LoggedValues train_values_{/*default_on_step=*/true, /*default_on_epoch=*/false};
  LoggedValues epoch_values_{/*default_on_step=*/false, /*default_on_epoch=*/true};
  LoggedValues evaluation_values_{/*default_on_step=*/false, /*default_on_epoch=*/true};
  LoggedValues* collecting_ = nullptr;
  LoggedValues* stepped_ = nullptr;  ///< the values whose newest step is newer than metrics_
  Metrics metrics_;
  Metrics results_;
  Scalars pending_;  ///< for the next row
  Scalars bar_values_;
};

}  // namespace levin::detail
