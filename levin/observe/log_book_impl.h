#pragma once
// LogBook: the names a stage has logged, each with its options, latest value and running sum.
// The inside of LoggedValues; not for users.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/observe/logger.h"
#include "levin/observe/reduction.h"

namespace levin::detail {

/// LogOptions with what was left unset decided.
struct LogSettings {
  bool prog_bar;
  bool logger;
  bool on_step;
  bool on_epoch;
  std::string reduce;
  bool sync_dist = false;
  bool rank_zero_only = false;
  std::vector<std::string> labels = {};
};

/// The index of the loader of a value that stands for all loaders.
constexpr int64_t kNoLoader = -1;

struct LogEntry {
  LogEntry(std::string_view name, int64_t loader, LogSettings settings, bool is_metric);

  bool shown_to(LogTarget target) const;
  /// Adds the one or two names of each of these values to scalars.
  void show(const std::vector<double>& values, std::string_view suffix, LogTarget target,
            Scalars& scalars) const;
  /// Checks labels against that many values of a metric.
  void check_labels(int64_t count) const;
  void take(double value, int64_t weight, int64_t now);
  void take(const at::Tensor& value, int64_t weight, int64_t now);
  void take(std::shared_ptr<Metric> object, int64_t now);
  void reset_epoch();
  State state_dict() const;
  void merge(const State& other);

  std::string name;
  int64_t loader;  ///< index of the loader whose batches log it, or kNoLoader
  LogSettings settings;
  bool is_metric;
  int64_t step = -1;    // the last step that logged it
  bool unseen = false;  // by callbacks, since it was logged last

  // A value. The latest step's value lies in host, or in device if host is unset.
  int64_t weight = 1;  // samples that it stands for
  std::optional<double> host;
  at::Tensor device;  // one element; double unless on XLA
  Reduction epoch;

  // A metric, and states to merge into it once the object is known.
  std::shared_ptr<Metric> metric;
  bool metric_logged = false;  // in this epoch
  std::vector<State> unmerged;

  // Values as they were read last: none before, several of a metric with a value per class.
  std::vector<double> read_step;
  std::vector<double> read_epoch;
};

class LogBook {
 public:
  LogBook(bool default_on_step, bool default_on_epoch)
      : default_on_step_(default_on_step), default_on_epoch_(default_on_epoch) {}

  void begin_step(int64_t batch_size);
  /// The entry of that name, made when it is new; throws when it was logged otherwise before.
  LogEntry& find(std::string_view name, const LogOptions& options, bool is_metric) {
    return find(name, options.add_dataloader_idx ? loader_ : kNoLoader, options, is_metric);
  }
  LogEntry& find(std::string_view name, int64_t loader, const LogOptions& options, bool is_metric);
  void set_dataloader_index(std::optional<int64_t> index) { loader_ = index.value_or(kNoLoader); }
  /// Samples a value stands for.
  int64_t weight(std::string_view name, const LogOptions& options) const;

  std::vector<LogEntry>& entries() { return entries_; }
  const std::vector<LogEntry>& entries() const { return entries_; }
  int64_t step() const { return step_; }

 private:
  bool on_step(const LogOptions& options, bool is_metric) const {
    return options.on_step ? *options.on_step : !is_metric && default_on_step_;
  }
  bool on_epoch(const LogOptions& options, bool is_metric) const {
    return options.on_epoch ? *options.on_epoch : is_metric || default_on_epoch_;
  }
  void check_alike(const LogEntry& entry, const LogOptions& options, bool is_metric) const;
  LogEntry& add(std::string_view name, int64_t loader, LogSettings settings, bool is_metric);

  bool default_on_step_;
  bool default_on_epoch_;
  std::vector<LogEntry> entries_;  // in the order of first appearance
  std::map<std::pair<std::string, int64_t>, size_t> places_;
  int64_t loader_ = kNoLoader;
  size_t next_ = 0;  // place at which the next name is expected
  int64_t step_ = 0;
  int64_t batch_size_ = 1;
};

}  // namespace levin::detail
