#include "levin/trainer/run.h"

#include <torch/nn/module.h>

#include <set>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/anomaly.h"
#include "levin/trainer/callbacks/model_checkpoint.h"
#include "levin/trainer/callbacks/model_summary.h"
#include "levin/trainer/callbacks/progress_bar.h"
#include "levin/trainer/signals.h"
#include "levin/xla/device/runtime.h"

namespace levin::detail {

std::string_view stage_name(Stage stage) {
  constexpr std::array<std::string_view, 4> kNames = {"fit", "validate", "test", "predict"};
  return kNames[static_cast<size_t>(stage)];
}

std::optional<int64_t> size_of(const DataLoader& loader) {
  return loader.has_size() ? std::optional(loader.size()) : std::nullopt;
}

namespace {

/// A loader reads at one place at a time: that of validation reads the same data by itself.
DataLoader apart_from(const DataLoader& training, const DataLoader& validation) {
  const auto& sampler = training.options().sampler;
  LEVIN_CHECK(sampler == nullptr || sampler != validation.options().sampler, "trainer.dataloader",
              "the loaders of training and validation share a sampler, which cannot stand in two "
              "places; give validation a sampler of its own");
  return validation.impl() == training.impl() ? validation.copy() : validation;
}

}  // namespace

Run::Run(Trainer& trainer, std::shared_ptr<Module> module, Stage stage, const Progress& before)
    : trainer_(trainer),
      options_(trainer.options()),
      accelerator_(trainer.accelerator()),
      step_(accelerator_, "the training step"),
      module_(std::move(module)),
      stage_(stage) {
  LEVIN_CHECK(module_ != nullptr, "trainer.module", "got an empty module pointer, wanted a module");
  if (stage != Stage::kFit) {
    progress_ = {.epoch = before.epoch, .global_step = before.global_step};
  }
  accelerator_.free_memory();
  choose_loggers();
  choose_callbacks();
  module_->attach(this);
}

Run::~Run() {
  module_->attach(nullptr);
  accelerator_.stepping().set_where(nullptr);
  for (const auto& logger : loggers_) logger->flush();
}

void Run::choose_loggers() {
  const bool quiet = options_.barebones || options_.fast_dev_run > 0 || stage_ == Stage::kPredict;
  if (!quiet && accelerator_.is_main_process()) loggers_ = trainer_.loggers();
}

void Run::choose_callbacks() {
  callbacks_ = options_.callbacks;
  const auto has = [&](bool (*is_one)(const Callback&)) {
    return std::any_of(callbacks_.begin(), callbacks_.end(),
                       [&](const auto& callback) { return is_one(*callback); });
  };
  const auto writes = [](const Callback& callback) { return callback.writes_checkpoints(); };
  const bool bare = options_.barebones || options_.fast_dev_run > 0;
  if (bare || !options_.enable_checkpointing || stage_ != Stage::kFit) {
    std::erase_if(callbacks_, [&](const auto& callback) { return writes(*callback); });
  } else if (!has(writes)) {
    callbacks_.push_back(model_checkpoint({}));
  }
  if (!options_.barebones && options_.enable_progress_bar) callbacks_.push_back(progress_bar({}));
  if (!options_.barebones && options_.enable_model_summary && stage_ == Stage::kFit) {
    callbacks_.push_back(model_summary({}));
  }
  std::set<const Callback*> seen;
  for (const auto& callback : callbacks_) {
    const std::string key = callback->state_key();
    LEVIN_CHECK(seen.insert(callback.get()).second, "trainer.callbacks",
                "the callback '{}' is given twice; give each once", key);
    // Several may monitor the same thing: the second is "key-2".
    std::string place = key;
    for (int64_t number = 2; std::ranges::count(callback_keys_, place) > 0; ++number) {
      LEVIN_CHECK(callback->writes_checkpoints(), "trainer.callbacks",
                  "two callbacks have the state key '{}'; give one of them another", key);
      place = fmt::format("{}-{}", key, number);
    }
    callback_keys_.push_back(std::move(place));
    (callback->writes_checkpoints() ? writers_ : watchers_).push_back(callback.get());
  }
}

void Run::set_up(std::shared_ptr<DataModule> data) {
  const std::string_view stage = stage_name(stage_);
  data_module_ = std::move(data);
  accelerator_.local_main_first([&] { module_->prepare_data(); });
  module_->setup(stage);
  module_->configure_model();
  accelerator_.prepare_module(module_);
  agree_on_folders();
  tell(watchers_, &Callback::setup, stage);
  tell(writers_, &Callback::setup, stage);
}

// Rank 0 alone has loggers.
void Run::agree_on_folders() {
  State state;
  state.set("log_dir", loggers_.empty() ? "" : loggers_.front()->log_dir());
  log_dir_ = accelerator_.broadcast_object(state).text("log_dir");
}

void Run::tear_down() {
  const std::string_view stage = stage_name(stage_);
  module_->teardown(stage);
  if (data_module_) data_module_->teardown(stage);
  tell(watchers_, &Callback::teardown, stage);
  tell(writers_, &Callback::teardown, stage);
}

void Run::fit(DataLoader training, std::optional<DataLoader> validation,
              std::shared_ptr<DataModule> data, const std::string& ckpt_path) {
  const Active active(active_);
  const SignalGuard signals;
  std::optional<AnomalyDetection> anomaly;
  if (options_.detect_anomaly) anomaly.emplace();
  try {
    set_up(std::move(data));
    prepare_fit(std::move(training), std::move(validation));
    const bool resumed = resume(ckpt_path);
    call(&Module::on_fit_start, &Callback::on_fit_start);
    if (!resumed) sanity_check();
    say_what_is_not_trained();
    started_ = std::chrono::steady_clock::now();
    train();
    call(&Module::on_fit_end, &Callback::on_fit_end);
    tear_down();
    say_where();
  } catch (const std::exception& error) {
    report(error);
    throw;
  }
}

void Run::prepare_fit(DataLoader training, std::optional<DataLoader> validation) {
  accelerator_.stepping().set_where(
      [this] { return fmt::format("batch {} of epoch {}", progress_.batch, progress_.epoch); });
  if (validation) validation = apart_from(training, *validation);
  training.set_epoch(0);  // a run before may have left it in an epoch's middle
  train_loader_ = accelerator_.prepare_loader(std::move(training), LoaderRole::kTraining);
  if (validation) {
    val_loader_ = accelerator_.prepare_loader(std::move(*validation), LoaderRole::kEvaluation);
  }
  limits_ =
      resolve_limits(options_, size_of(*train_loader_), val_loader_ ? size_of(*val_loader_) : 0);
  warn_of_few_steps();
  if (!module_->automatic_optimization) {
    LEVIN_CHECK(
        options_.accumulate_grad_batches == 1 && options_.gradient_clip_val.value_or(0.0) == 0.0,
        "trainer.manual_optimization",
        "{} optimizes by itself (automatic_optimization = false), so accumulate_grad_batches "
        "and gradient_clip_val have no effect; do both in training_step",
        module_->name());
  }
  optimizers_ = accelerator_.prepare_optimizers(module_->configure_optimizers().list(),
                                                limits_.total_steps());
  if (!module_->automatic_optimization) call_hook_before_steps();
  watch_logs();
  if (accelerator_.rank().world_size == 1 && !writers_.empty()) {
    boundary_.emplace(*module_, *train_loader_, train_values_, accelerator_);
  }
  std::map<std::string, std::string> record = options_as_text(options_);
  record.merge(module_->hparams());
  for (const auto& logger : loggers_) logger->log_hyperparams(record);
}

// Gradients are not clipped yet and agree over the ranks, as with automatic optimization.
void Run::call_hook_before_steps() {
  for (PreparedOptimizer& optimizer : optimizers_) {
    optimizer.before_step([this](OptimizerHandle& stepping) {
      module_->on_before_optimizer_step(stepping);
      tell(watchers_, &Callback::on_before_optimizer_step);
    });
  }
}

// Parts that the user has put into evaluation mode stay there, as in Lightning.
void Run::say_what_is_not_trained() const {
  int64_t count = 0;
  for (const auto& part : module_->modules()) count += part->is_training() ? 0 : 1;
  if (count == 0) return;
  log::warn(
      "trainer: {} of the module's parts are in evaluation mode and stay there; call "
      "train() before fit if that is not meant",
      count);
}

void Run::warn_of_few_steps() const {
  const int64_t steps = limits_.total_steps();
  if (loggers_.empty() || steps <= 0 || steps >= options_.log_every_n_steps) return;
  log::warn(
      "trainer: this run takes {} steps and values of steps are logged every {}, so none "
      "will be; lower --log-every-n-steps to see them",
      steps, options_.log_every_n_steps);
}

int64_t Run::num_updates() const {
  int64_t updates = 0;
  for (const PreparedOptimizer& optimizer : optimizers_) updates += optimizer.num_updates();
  return updates;
}

// What is left of a step that threw, and of the batches of its group, is no state to go on from.
void Run::undo_step() {
  if (!boundary_ || updating_ || at_step_boundary() || gradients_wait()) return;
  if (!boundary_->go_back(progress_, num_updates())) return;
  in_step_ = false;
  gradients_ready_ = false;
}

void Run::report(const std::exception& error) {
  note_place(fmt::format("epoch {}, batch {}", progress_.epoch, progress_.batch));
  undo_step();
  for (const auto* group : {&watchers_, &writers_}) {
    for (Callback* callback : *group) {
      try {
        callback->on_exception(trainer_, *module_, error);
      } catch (const std::exception& second) {
        log::error("trainer: callback {} failed too: {}", callback->state_key(), second.what());
      }
    }
  }
}

void Run::say_where() const {
  if (accelerator_.xla()) log::info("xla: {}", accelerator_.xla()->report().summary());
  if (!loggers_.empty()) log::info("trainer: logs are in {}", log_dir());
  const std::string folder = writers_.empty() ? "" : writers_.front()->checkpoint_folder();
  if (!folder.empty()) log::info("trainer: checkpoints are in {}, the newest is 'last'", folder);
}

void Run::agree_on_stop(bool between_steps) {
  constexpr int64_t kStepsUnasked = 10;
  comm::ProcessGroup& world = accelerator_.world();
  const bool is_quick = world.size() == 1 || world.backend() == "shm";
  if (between_steps && !is_quick && ++steps_unasked_ < kStepsUnasked) return;
  steps_unasked_ = 0;
  stop_ = {.signal = SignalGuard::received(), .requested = stop_requested() || is_out_of_time()};
  if (world.size() == 1) return;
  const at::Tensor words = at::empty({2}, at::kInt);
  auto* word = words.mutable_data_ptr<int>();
  word[0] = stop_.signal;
  word[1] = stop_.requested;
  world.all_reduce(words, ReduceOp::kMax);
  stop_ = {.signal = word[0], .requested = word[1] != 0};
}

bool Run::finished() const {
  if (stop_.signal != 0) return true;
  if (limits_.max_steps >= 0 && progress_.global_step >= limits_.max_steps) return true;
  if (limits_.max_epochs >= 0 && progress_.epoch >= limits_.max_epochs) return true;
  if (limits_.train_batches == 0) return true;
  return stop_.requested && progress_.epoch >= limits_.min_epochs &&
         progress_.global_step >= limits_.min_steps;
}

bool Run::is_out_of_time() const {
  return limits_.seconds && seconds_trained() >= *limits_.seconds;
}

double Run::seconds_trained() const {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - started_;
  return progress_.seconds + now.count();
}

bool Run::at_step_boundary() const { return !in_step_ && limits_.group_complete(progress_.batch); }

bool Run::gradients_wait() const {
  return std::ranges::any_of(optimizers_, [&](const PreparedOptimizer& optimizer) {
    return progress_.global_step % optimizer.frequency() != 0;
  });
}

// A run that is about to stop shows where it stands.
bool Run::should_log() const {
  return progress_.global_step % options_.log_every_n_steps == 0 || stop_requested() ||
         is_out_of_time();
}

int64_t Run::manual_updates() const {
  if (module_->automatic_optimization) return 0;
  return num_updates();
}

OptimizerHandle& Run::optimizer(int64_t index) {
  LEVIN_CHECK(index >= 0 && index < static_cast<int64_t>(optimizers_.size()), "trainer.optimizer",
              "got optimizer({}), but configure_optimizers gave {}", index, optimizers_.size());
  return optimizers_[static_cast<size_t>(index)];
}

void Run::backward(const at::Tensor& loss) {
  call(&Module::on_before_backward, &Callback::on_before_backward, loss);
  accelerator_.backward(loss);
  call(&Module::on_after_backward, &Callback::on_after_backward);
}

Batch Run::to_device(Batch batch) {
  batch = module_->on_before_batch_transfer(std::move(batch));
  if (!accelerator_.device().is_cpu()) {
    batch = accelerator_.strategy().to_device(batch, accelerator_.device());
  }
  batch = module_->on_after_batch_transfer(std::move(batch));
  const Precision& precision = accelerator_.precision();
  return precision.parameters ? precision.convert(batch) : batch;
}

std::string Run::checkpoint_dir() const {
  return (log_dir_.empty() ? options_.default_root_dir : log_dir_) + "/checkpoints";
}

}  // namespace levin::detail
