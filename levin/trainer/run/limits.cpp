#include "levin/trainer/run/limits.h"

#include <algorithm>
#include <array>
#include <utility>

#include "levin/base/check.h"

namespace levin::detail {
namespace {

void check_portions(const TrainerOptions& o) {
  const std::array<std::pair<std::string_view, const Portion*>, 6> portions = {{
      {"limit_train_batches", &o.limit_train_batches},
      {"limit_val_batches", &o.limit_val_batches},
      {"limit_test_batches", &o.limit_test_batches},
      {"limit_predict_batches", &o.limit_predict_batches},
      {"overfit_batches", &o.overfit_batches},
      {"val_check_interval", &o.val_check_interval},
  }};
  for (const auto& [name, portion] : portions) {
    LEVIN_CHECK(portion->valid(), "trainer.options",
                "got {} = {}, wanted a fraction from 0.0 to 1.0 or a count of at least 0", name,
                to_text(*portion));
  }
}

void check_at_least(std::string_view name, int64_t value, int64_t least) {
  LEVIN_CHECK(value >= least, "trainer.options", "got {} = {}, wanted at least {}", name, value,
              least);
}

}  // namespace

void check_options(const TrainerOptions& o) {
  check_portions(o);
  check_at_least("max_epochs", o.max_epochs.value_or(-1), -1);
  check_at_least("min_epochs", o.min_epochs, 0);
  check_at_least("max_steps", o.max_steps, -1);
  check_at_least("min_steps", o.min_steps, 0);
  check_at_least("fast_dev_run", o.fast_dev_run, 0);
  check_at_least("num_sanity_val_steps", o.num_sanity_val_steps, -1);
  check_at_least("log_every_n_steps", o.log_every_n_steps, 1);
  check_at_least("check_val_every_n_epoch", o.check_val_every_n_epoch.value_or(1), 1);
  check_at_least("reload_dataloaders_every_n_epochs", o.reload_dataloaders_every_n_epochs, 0);
  LEVIN_CHECK(o.check_val_every_n_epoch || !o.val_check_interval.is_fraction() ||
                  o.val_check_interval.seconds(),
              "trainer.options",
              "got check_val_every_n_epoch = none and val_check_interval = {}; set "
              "val_check_interval to a number of batches or to a time",
              to_text(o.val_check_interval));
  LEVIN_CHECK(
      o.overfit_batches.is_none() ||
          (o.limit_train_batches.is_whole() && o.limit_val_batches.is_whole()),
      "trainer.options",
      "got overfit_batches = {} with limit_train_batches = {} and limit_val_batches = {}; set only "
      "overfit_batches",
      to_text(o.overfit_batches), to_text(o.limit_train_batches), to_text(o.limit_val_batches));
  LEVIN_CHECK(o.accumulate_grad_batches.valid(), "trainer.options",
              "got accumulate_grad_batches = {}, wanted auto or at least 1",
              to_text(o.accumulate_grad_batches));
  LEVIN_CHECK(o.accumulate_grad_batches.count() != 0 || o.engine.compile != "replay",
              "trainer.options",
              "got accumulate_grad_batches = auto, which measures memory between the parts of a "
              "batch, with compile = replay; set a number, or --compile no");
  for (const auto& [epoch, count] : o.accumulate_grad_batches_by_epoch.counts()) {
    LEVIN_CHECK(
        epoch >= 0 && count >= 1, "trainer.options",
        "got accumulate_grad_batches_by_epoch = {}, wanted epochs of at least 0 with counts "
        "of at least 1",
        to_text(o.accumulate_grad_batches_by_epoch));
  }
  LEVIN_CHECK(
      o.accumulate_grad_batches.count() == 1 || o.accumulate_grad_batches_by_epoch.counts().empty(),
      "trainer.options",
      "got accumulate_grad_batches = {} and accumulate_grad_batches_by_epoch = {}; set one of "
      "them",
      to_text(o.accumulate_grad_batches), to_text(o.accumulate_grad_batches_by_epoch));
  LEVIN_CHECK(
      o.engine.train_batch_size == 0 || (o.accumulate_grad_batches.count() != 0 &&
                                         o.accumulate_grad_batches_by_epoch.counts().empty()),
      "trainer.options",
      "got train_batch_size = {} with accumulate_grad_batches = {} and "
      "accumulate_grad_batches_by_epoch = {}; leave the two out, since train_batch_size "
      "sets the number of batches",
      o.engine.train_batch_size, to_text(o.accumulate_grad_batches),
      to_text(o.accumulate_grad_batches_by_epoch));
  LEVIN_CHECK(o.gradient_clip_val.value_or(0.0) >= 0.0, "trainer.options",
              "got gradient_clip_val = {}, wanted at least 0", *o.gradient_clip_val);
  LEVIN_CHECK(o.gradient_clip_algorithm == "norm" || o.gradient_clip_algorithm == "value",
              "trainer.options", "got gradient_clip_algorithm = '{}', wanted norm or value",
              o.gradient_clip_algorithm);
  LEVIN_CHECK(o.profiler != "advanced", "trainer.profiler",
              "got --profiler advanced, which is Python's cProfile; set --profiler simple for the "
              "time of hooks, --profiler pytorch for operators, or run the program under perf");
  LEVIN_CHECK(o.profiler.empty() || o.profiler == "simple" || o.profiler == "pytorch",
              "trainer.profiler", "got --profiler '{}', wanted simple or pytorch", o.profiler);
  LEVIN_CHECK(
      o.profiler.empty() || !o.barebones, "trainer.profiler",
      "got --profiler {} with --barebones, which measures the bare steps; leave one of them "
      "out",
      o.profiler);
  LEVIN_CHECK(!o.detect_anomaly || o.engine.compile != "replay", "trainer.options",
              "--detect-anomaly checks each gradient on the host, but a recorded step cannot; set "
              "--compile no, or leave --detect-anomaly out");
  LEVIN_CHECK(o.devices.valid(), "trainer.options", "got devices = {}, wanted auto or at least 1",
              to_text(o.devices));
  check_at_least("num_nodes", o.num_nodes, 1);
  check_at_least("tpu_cores", o.tpu_cores, 0);
  const bool is_tpu = o.accelerator == "auto" || o.accelerator == "tpu" || o.accelerator == "xla";
  const bool has_devices = o.devices.count() != 0 && o.devices.count() != o.tpu_cores;
  LEVIN_CHECK(o.tpu_cores == 0 || (is_tpu && !has_devices), "trainer.options",
              "got tpu_cores = {} with accelerator = {} and devices = {}; set only tpu_cores",
              o.tpu_cores, o.accelerator, o.devices.count());
  parse_duration(o.max_time);
}

std::optional<double> parse_duration(const std::string& text, std::string_view option) {
  if (text.empty()) return std::nullopt;
  constexpr std::array<int64_t, 4> kSeconds = {1, 60, 3600, 86400};
  std::string with_commas = text;
  std::replace(with_commas.begin(), with_commas.end(), ':', ',');
  std::vector<int64_t> parts;
  try {
    from_text(with_commas, parts);
  } catch (const Error&) {
    parts.clear();
  }
  const bool negative =
      std::any_of(parts.begin(), parts.end(), [](int64_t part) { return part < 0; });
  LEVIN_CHECK(!parts.empty() && parts.size() <= kSeconds.size() && !negative, "trainer.options",
              "got {} = '{}', wanted DD:HH:MM:SS", option, text);
  int64_t seconds = 0;
  for (size_t i = 0; i < parts.size(); ++i) seconds += parts[parts.size() - 1 - i] * kSeconds[i];
  return static_cast<double>(seconds);
}

int64_t portion_of(std::optional<int64_t> total, std::string_view option, const Portion& portion) {
  if (total) {
    const int64_t batches = portion.of(*total);
    LEVIN_CHECK(batches > 0 || *total == 0 || portion.is_none(), "trainer.options",
                "got {} = {}, which is less than one of {} batches; give a larger fraction, or a "
                "count: {} = 1",
                option, to_text(portion), *total, option);
    return batches;
  }
  if (!portion.is_fraction()) return portion.of(kUncounted);
  LEVIN_CHECK(portion.is_whole() || portion.is_none(), "trainer.options",
              "got {} = {}, a fraction, but the length of the stream is unknown; give a count, or "
              "override shard_size() of the data set",
              option, to_text(portion));
  return portion.is_none() ? 0 : kUncounted;
}

bool validates_once_an_epoch(const TrainerOptions& options) {
  return options.val_check_interval.is_whole() && !options.val_check_interval.seconds() &&
         options.check_val_every_n_epoch == 1;
}

int64_t Limits::steps_of(int64_t epochs) const {
  int64_t steps = 0, from = 0, windows = accumulate_otherwise;
  const auto add_until = [&](int64_t end) {
    steps += std::max<int64_t>(0, end - from) * ((train_batches + windows - 1) / windows);
    from = std::max(from, end);
  };
  for (const auto& [epoch, next] : accumulate_by_epoch.counts()) {
    add_until(std::min(epoch, epochs));
    windows = next;
  }
  add_until(epochs);
  return steps;
}

int64_t Limits::total_steps() const {
  if (!counted) return max_epochs == 0 ? 0 : max_steps;
  const int64_t by_epochs = max_epochs < 0 ? -1 : steps_of(max_epochs);
  if (by_epochs < 0) return max_steps;
  return max_steps < 0 ? by_epochs : std::min(by_epochs, max_steps);
}

int64_t Limits::total_epochs() const {
  if (!counted || max_steps < 0 || train_batches == 0) return max_epochs;
  int64_t few = 0, many = max_steps;  // an epoch has at least one step
  while (few < many) {
    const int64_t between = few + (many - few) / 2;
    if (steps_of(between) < max_steps) {
      few = between + 1;
    } else {
      many = between;
    }
  }
  return max_epochs < 0 ? many : std::min(many, max_epochs);
}

int64_t Limits::window_size(int64_t batch) const {
  const int64_t start = batch - place_in_window(batch);
  return counted ? std::min(accumulate, train_batches - start) : accumulate;
}

bool Limits::window_complete(int64_t batches_done) const {
  return place_in_window(batches_done) == 0 || epoch_complete(batches_done);
}

bool Limits::epoch_complete(int64_t batches_done) const {
  return batches_done >= train_batches || (ended_after && batches_done >= *ended_after);
}

Limits resolve_limits(const TrainerOptions& o, std::optional<int64_t> train_size,
                      std::optional<int64_t> val_size) {
  Limits limits;
  limits.seconds = parse_duration(o.max_time);
  limits.max_steps = o.max_steps;
  const bool limited = o.max_steps >= 0 || limits.seconds.has_value();
  limits.max_epochs = o.max_epochs.value_or(limited ? -1 : 1000);
  limits.min_steps = o.min_steps;
  limits.min_epochs = o.min_epochs == 0 && o.min_steps > 0 ? 1 : o.min_epochs;  // as in Lightning
  limits.accumulate_otherwise = std::max<int64_t>(1, o.accumulate_grad_batches.count());
  limits.accumulate_by_epoch = o.accumulate_grad_batches_by_epoch;
  limits.enter_epoch(0);
  limits.counted = train_size.has_value();
  limits.val_epochs = o.check_val_every_n_epoch.value_or(kAcross);
  const bool overfits = !o.overfit_batches.is_none();
  if (o.fast_dev_run > 0) {
    limits.max_epochs = 1;
    limits.val_epochs = 1;
    limits.max_steps = -1;
    limits.train_batches = std::min(o.fast_dev_run, train_size.value_or(kUncounted));
    limits.val_batches = std::min(o.fast_dev_run, val_size.value_or(kUncounted));
  } else {
    limits.train_batches =
        overfits ? portion_of(train_size, "overfit_batches", o.overfit_batches)
                 : portion_of(train_size, "limit_train_batches", o.limit_train_batches);
    limits.val_batches = overfits ? portion_of(val_size, "overfit_batches", o.overfit_batches)
                                  : portion_of(val_size, "limit_val_batches", o.limit_val_batches);
    limits.val_seconds = o.val_check_interval.seconds();
  }
  const Portion interval = o.fast_dev_run > 0 ? CheckInterval(1.0) : o.val_check_interval;
  if (limits.val_epochs == kAcross && !interval.is_fraction()) {
    limits.val_interval = interval.of(kUncounted);
    return limits;
  }
  if (interval.is_fraction() && limits.counted) {
    limits.val_interval = std::max<int64_t>(1, interval.of(limits.train_batches));
    return limits;
  }
  limits.val_interval = std::max<int64_t>(
      1, limits.counted ? interval.of(limits.train_batches + 1)
                        : portion_of(std::nullopt, "val_check_interval", interval));
  // The check follows Lightning, whether there is a validation loader or not. For a stream,
  // train_batches is what a limit says.
  LEVIN_CHECK(interval.is_fraction() || limits.val_interval <= limits.train_batches ||
                  limits.train_batches == 0 || o.limit_val_batches.is_none(),
              "trainer.options",
              "got val_check_interval = {}, but an epoch has {} batches; lower it, use "
              "check_val_every_n_epoch, or set limit_val_batches = 0 to disable validation",
              to_text(interval), limits.train_batches);
  return limits;
}

}  // namespace levin::detail
