#include "levin/trainer/callbacks/model_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/files/atomic.h"
#include "levin/trainer/callbacks/checkpoint_name.h"
#include "levin/trainer/run/limits.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

/// The epoch that runs, or the one that has just ended.
int64_t newest_epoch(const Trainer& trainer) {
  const int64_t epoch = trainer.current_epoch();
  return trainer.batches_done() == 0 ? std::max<int64_t>(0, epoch - 1) : epoch;
}

/// Checks the folder before the first batch, and without making it: a run may end before anything
/// is saved.
void check_folder(const std::string& folder) {
  std::filesystem::path there = std::filesystem::absolute(folder);
  std::error_code error;
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const bool is_folder = std::filesystem::is_directory(there, error);
  LEVIN_CHECK(is_folder && ::access(there.c_str(), W_OK | X_OK) == 0, "trainer.checkpoint.options",
              "got dirpath = '{}' for checkpoints, but {} {}; set dirpath to another folder",
              folder, there.string(), is_folder ? "cannot be written" : "is no folder");
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(ModelCheckpointOptions options)
    : options_(std::move(options)), folder_(options_.dirpath) {
  LEVIN_CHECK(options_.mode == "min" || options_.mode == "max", "trainer.checkpoint.options",
              "got mode = '{}', wanted min or max", options_.mode);
  LEVIN_CHECK(options_.save_top_k >= -1 && options_.every_n_train_steps >= 0 &&
                  options_.every_n_epochs.value_or(0) >= 0,
              "trainer.checkpoint.options",
              "got save_top_k = {}, every_n_train_steps = {} and every_n_epochs = {}, wanted at "
              "least -1, 0 and 0",
              options_.save_top_k, options_.every_n_train_steps, to_text(options_.every_n_epochs));
  const int triggers = int{options_.every_n_train_steps > 0} +
                       int{options_.train_time_interval.has_value()} +
                       int{options_.every_n_epochs.value_or(0) > 0};
  LEVIN_CHECK(triggers <= 1, "trainer.checkpoint.options",
              "got more than one of every_n_train_steps, train_time_interval and every_n_epochs; "
              "use a separate model_checkpoint for each");
  // Throws for a malformed name. A slash in the name of a metric is none of the file's.
  const std::string example = detail::checkpoint_name(
      options_.filename, {.insert_names = options_.auto_insert_metric_name});
  LEVIN_CHECK(!example.empty() && example.find('/') == std::string::npos && example != "last" &&
                  example != "." && example != "..",
              "trainer.checkpoint.options",
              "got filename = '{}', wanted a name without slashes other than 'last'; set the "
              "folder with dirpath",
              options_.filename);
  LEVIN_CHECK(options_.train_time_interval.value_or(std::chrono::seconds(0)).count() >= 0,
              "trainer.checkpoint.options", "got train_time_interval = {} s, wanted at least 0",
              options_.train_time_interval->count());
}

// Several of one run differ in what they monitor, or in when they save.
std::string CheckpointKeeper::state_key() const {
  std::string key = "model_checkpoint";
  if (!options_.monitor.empty()) key += "-" + options_.monitor;
  if (options_.every_n_train_steps > 0) {
    key += fmt::format("-every_{}_steps", options_.every_n_train_steps);
  }
  if (options_.train_time_interval) {
    key += fmt::format("-every_{}_s", options_.train_time_interval->count());
  }
  if (options_.every_n_epochs.value_or(1) != 1) {
    key += fmt::format("-every_{}_epochs", *options_.every_n_epochs);
  }
  return key;
}

void CheckpointKeeper::setup(Trainer& trainer, Module&, std::string_view) {
  forget();
  if (options_.dirpath.empty()) folder_ = trainer.checkpoint_dir();
  int64_t removed = 0;
  trainer.accelerator().all_or_throw([&] {
    if (!keeps_folder(trainer)) return;
    check_folder(folder_);
    removed = files::remove_stale_staging(folder_);
  });
  if (removed > 0) {
    log::info("model_checkpoint: removed {} incomplete checkpoints of a run that was killed",
              removed);
  }
}

void CheckpointKeeper::on_train_start(Trainer& trainer, Module&) {
  training_ = true;
  saved_at_ = std::chrono::steady_clock::now();
  last_step_ = trainer.global_step();
  ranked_step_ = std::min(ranked_step_, last_step_);  // it may be another fit's
  if (trainer.accelerator().is_main_process()) warn_of_no_save(trainer);
}

// As in Lightning such a run trains, and saves only at its end.
void CheckpointKeeper::warn_of_no_save(const Trainer& trainer) const {
  const int64_t steps = trainer.estimated_stepping_batches();
  const int64_t epochs = trainer.options().max_epochs.value_or(-1);
  const int64_t every = options_.every_n_epochs.value_or(1);
  std::string why;
  if (options_.every_n_train_steps > 0 && steps >= 0 && options_.every_n_train_steps > steps) {
    why = fmt::format("every_n_train_steps = {}, but the run has {} steps",
                      options_.every_n_train_steps, steps);
  } else if (every > 1 && epochs >= 0 && every > epochs) {
    why = fmt::format("every_n_epochs = {}, but the run has {} epochs", every, epochs);
  } else if (epoch_due(every - 1) && !at_train_epoch_end(trainer) && !trainer.has_validation()) {
    why = "save_on_train_epoch_end = false, but the run has no validation";
  }
  if (why.empty()) return;
  log::warn(
      "model_checkpoint: {}, so it {}", why,
      options_.save_last ? "saves only at the end of the run" : "never saves; change one of them");
}

bool CheckpointKeeper::epoch_due(int64_t epoch) const {
  const bool otherwise = options_.every_n_train_steps > 0 || options_.train_time_interval;
  const int64_t every = options_.every_n_epochs.value_or(otherwise ? 0 : 1);
  return every > 0 && (epoch + 1) % every == 0;
}

bool CheckpointKeeper::at_train_epoch_end(const Trainer& trainer) const {
  return options_.save_on_train_epoch_end.value_or(
      !trainer.has_validation() || detail::validates_once_an_epoch(trainer.options()));
}

// Without this wait the monitored value would be another step's, or none yet.
bool CheckpointKeeper::waits_for_validation(const Trainer& trainer) const {
  if (options_.monitor.empty() || !trainer.has_validation()) return false;
  return trainer.validation_due();
}

bool CheckpointKeeper::lacks_monitor(const Trainer& trainer) const {
  return !options_.monitor.empty() && !trainer.callback_metrics().contains(options_.monitor);
}

void CheckpointKeeper::warn_of_monitor(const Trainer& trainer, std::string_view so) {
  if (std::exchange(told_of_monitor_, true)) return;
  log::warn("model_checkpoint: nothing named '{}' was logged by step {}, so {}", options_.monitor,
            trainer.global_step(), so);
}

// A value of the epoch is not there in its first steps: such a save waits.
bool CheckpointKeeper::can_rank(Trainer& trainer, bool validation_may_tell) {
  // Rank 0's view for all: another may have logged other names.
  if (!trainer.accelerator().from_main(lacks_monitor(trainer))) return true;
  if (!validation_may_tell) warn_of_monitor(trainer, "saving waits until it is logged");
  return false;
}

// Once a validation has told what it tells, nothing of that name will come: a wrong name is an
// error then, as in Lightning.
std::optional<double> CheckpointKeeper::score(Trainer& trainer) {
  if (options_.monitor.empty()) return std::nullopt;
  Accelerator& accelerator = trainer.accelerator();
  double value = 0.0;
  if (accelerator.from_main(lacks_monitor(trainer)) && !validated_) {
    warn_of_monitor(trainer, "this checkpoint is not ranked");
    return std::nullopt;
  }
  accelerator.all_or_throw([&] {
    if (accelerator.is_main_process()) value = trainer.monitored(options_.monitor);
  });
  return accelerator.from_main(value);
}

void CheckpointKeeper::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&,
                                          const Batch&, int64_t) {
  const int64_t step = trainer.global_step();
  const int64_t every = options_.every_n_train_steps;
  if (every > 0 && step % every == 0 && step != last_step_) due_ = true;
  if (options_.train_time_interval && trainer.at_step_boundary()) {
    const auto waited = std::chrono::steady_clock::now() - saved_at_;
    if (trainer.accelerator().any(waited >= *options_.train_time_interval)) due_ = true;
  }
  if (!due_ || !trainer.at_step_boundary()) return;
  if (waits_for_validation(trainer) || !can_rank(trainer, trainer.has_validation())) return;
  save_ranked(trainer, trainer.current_epoch());
}

void CheckpointKeeper::on_evaluation_end(Trainer& trainer, Module&, std::string_view) {
  validated_ = true;
  const int64_t epoch = trainer.current_epoch();
  const bool by_epoch = epoch_due(epoch) && !at_train_epoch_end(trainer);
  if (by_epoch || (due_ && can_rank(trainer, false))) save_ranked(trainer, epoch);
}

void CheckpointKeeper::on_train_epoch_end(Trainer& trainer, Module&) {
  const int64_t epoch = trainer.current_epoch();
  const bool by_epoch = epoch_due(epoch) && at_train_epoch_end(trainer);
  if (by_epoch || (due_ && can_rank(trainer, false))) save_ranked(trainer, epoch);
}

void CheckpointKeeper::on_train_end(Trainer& trainer, Module&) {
  training_ = false;
  if (!options_.save_last || trainer.global_step() == last_step_) return;
  save(trainer, newest_epoch(trainer), std::nullopt, /*by_rule=*/false);
}

// Other callbacks have ended by now: an average of the weights does not replace the best ones.
void CheckpointKeeper::on_fit_end(Trainer& trainer, Module&) {
  if (!options_.load_best_at_end || best_.folder.empty()) return;
  detail::load_weights_of(trainer, best_.folder);
}

void CheckpointKeeper::on_exception(Trainer& trainer, Module&, const std::exception&) {
  // Ranks save together, and one that failed, or was left by the others, cannot.
  const bool alone = trainer.accelerator().rank().world_size == 1;
  const bool worth_it = training_ && !failed_ && options_.save_on_exception && alone;
  if (!worth_it || !trainer.at_step_boundary() || trainer.global_step() == last_step_) return;
  training_ = false;  // and so not behind it
  save(trainer, newest_epoch(trainer), std::nullopt, /*by_rule=*/false);
  log::error("model_checkpoint: the run ends with an error; step {} was saved in {}",
             trainer.global_step(), last_folder_);
}

void CheckpointKeeper::save_ranked(Trainer& trainer, int64_t epoch) {
  due_ = false;
  if (trainer.global_step() == ranked_step_) return;  // no step since: the same weights
  const std::optional<double> worth = score(trainer);
  ranked_step_ = trainer.global_step();
  save(trainer, epoch, worth, /*by_rule=*/true);
}

std::shared_ptr<ModelCheckpoint> model_checkpoint(ModelCheckpointOptions options) {
  return std::make_shared<CheckpointKeeper>(std::move(options));
}

}  // namespace levin
