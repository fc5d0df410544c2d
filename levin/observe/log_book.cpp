#include "levin/base/check.h"
#include "levin/observe/log_book_impl.h"

namespace levin::detail {

void LogBook::begin_step(int64_t batch_size) {
  ++step_;
  next_ = 0;
  batch_size_ = batch_size;
}

LogEntry& LogBook::find(std::string_view name, int64_t loader, const LogOptions& options,
                        bool is_metric) {
  // Steps log the same names in the same order: one comparison finds the entry.
  if (next_ >= entries_.size() || entries_[next_].name != name || entries_[next_].loader != loader)
      [[unlikely]] {
    const auto place = places_.find({std::string(name), loader});
    if (place == places_.end()) {
      return add(name, loader,
                 {options.prog_bar, options.logger, on_step(options, is_metric),
                  on_epoch(options, is_metric), options.reduce, options.sync_dist,
                  options.rank_zero_only, options.labels},
                 is_metric);
    }
    next_ = place->second;
  }
  LogEntry& entry = entries_[next_++];
  check_alike(entry, options, is_metric);
  return entry;
}

LogEntry& LogBook::add(std::string_view name, int64_t loader, LogSettings settings,
                       bool is_metric) {
  LEVIN_CHECK(
      settings.on_step || settings.on_epoch, "observe.log.when",
      "'{}' got on_step=false and on_epoch=false, so it would not be logged; set one of them",
      name);
  LEVIN_CHECK(!is_metric || settings.reduce == "mean", "observe.log.reduce",
              "'{}' got reduce '{}' with a metric, which has its own reduction; leave reduce out",
              name, settings.reduce);
  LEVIN_CHECK(
      !settings.sync_dist || !settings.rank_zero_only, "observe.log.sync_dist",
      "'{}' got sync_dist=true and rank_zero_only=true, but rank 0 cannot reduce over ranks "
      "that do not log; set one of them",
      name);
  LEVIN_CHECK(!settings.sync_dist || !is_metric || !settings.on_step, "observe.log.sync_dist",
              "'{}' got sync_dist=true with a metric that is read on_step, which has this rank's "
              "values; leave out on_step (an epoch's value is over all ranks) or sync_dist",
              name);
  LEVIN_CHECK(settings.labels.empty() || is_metric, "observe.log.labels",
              "'{}' got labels with a single value; leave them out", name);
  LogEntry& entry = entries_.emplace_back(name, loader, std::move(settings), is_metric);
  places_.emplace(std::pair(std::string(name), loader), entries_.size() - 1);
  next_ = entries_.size();
  return entry;
}

void LogBook::check_alike(const LogEntry& entry, const LogOptions& options, bool is_metric) const {
  LEVIN_CHECK(entry.is_metric == is_metric, "observe.log.kind",
              "'{}' was logged as a {} before but as a {} now; use two names", entry.name,
              entry.is_metric ? "metric" : "value", is_metric ? "metric" : "value");
  const LogSettings& was = entry.settings;
  const bool alike = options.prog_bar == was.prog_bar && options.logger == was.logger &&
                     on_step(options, is_metric) == was.on_step &&
                     on_epoch(options, is_metric) == was.on_epoch && options.reduce == was.reduce &&
                     options.sync_dist == was.sync_dist &&
                     options.rank_zero_only == was.rank_zero_only && options.labels == was.labels;
  LEVIN_CHECK(
      alike, "observe.log.options",
      "'{}' was logged before with prog_bar={}, logger={}, on_step={}, on_epoch={}, reduce={}, "
      "sync_dist={}, rank_zero_only={}, {} labels but now with other options; log it with the same "
      "options every time, or use two names",
      entry.name, was.prog_bar, was.logger, was.on_step, was.on_epoch, was.reduce, was.sync_dist,
      was.rank_zero_only, was.labels.size());
}

int64_t LogBook::weight(std::string_view name, const LogOptions& options) const {
  const int64_t weight = options.batch_size ? *options.batch_size : batch_size_;
  LEVIN_CHECK(weight >= 0, "observe.log.batch_size",
              "'{}' got the batch size {}, wanted 0 or more samples", name, weight);
  return weight;
}

}  // namespace levin::detail
