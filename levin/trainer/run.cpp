#include "levin/trainer/run.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/trainer/run/anomaly.h"
#include "levin/trainer/run/signals.h"
#include "levin/trainer/run/told.h"
#include "levin/xla/device/runtime.h"

namespace levin::detail {

std::string_view stage_name(Stage stage) {
  constexpr std::array<std::string_view, 4> kNames = {"fit", "validate", "test", "predict"};
  return kNames[static_cast<size_t>(stage)];
}

namespace {

std::shared_ptr<Module> present(std::shared_ptr<Module> module) {
  LEVIN_CHECK(module != nullptr, "trainer.module", "got an empty module pointer, wanted a module");
  return module;
}

/// As long as it lives, a signal also ends the wait for XLA's compiler. It is for a fit that ends
/// the program after a signal; in a program that continues, the compiler would run on.
class CompileStop {
 public:
  explicit CompileStop(xla::Runtime* runtime) : runtime_(runtime) {
    if (runtime_ != nullptr) runtime_->set_stop_signal(&SignalGuard::received);
  }
  ~CompileStop() {
    if (runtime_ != nullptr) runtime_->set_stop_signal(nullptr);
  }
  CompileStop(const CompileStop&) = delete;
  CompileStop& operator=(const CompileStop&) = delete;

 private:
  xla::Runtime* runtime_;
};

std::vector<std::shared_ptr<Logger>> loggers_of(Trainer& trainer, Stage stage) {
  const TrainerOptions& options = trainer.options();
  const bool quiet = options.barebones || options.fast_dev_run > 0 || stage == Stage::kPredict;
  if (quiet || !trainer.accelerator().is_main_process()) return {};
  return trainer.loggers();
}

}  // namespace

Run::Run(Trainer& trainer, std::shared_ptr<Module> module, Stage stage, const Progress& before)
    : trainer_(trainer),
      options_(trainer.options()),
      engine_(engine_of(trainer.accelerator())),
      step_(engine_, "the training step"),
      module_(present(std::move(module))),
      stage_(stage),
      given_callbacks_(given_by(*module_)),
      listeners_(trainer, *module_, callbacks_of(options_, given_callbacks_, stage == Stage::kFit)),
      stopping_(engine_.world()),
      log_(engine_, progress_, loggers_of(trainer, stage), options_.barebones) {
  if (stage != Stage::kFit) {
    progress_ = {.epoch = before.epoch, .global_step = before.global_step};
  }
  const bool accumulates = options_.accumulate_grad_batches.count() != 1 ||
                           !options_.accumulate_grad_batches_by_epoch.counts().empty();
  is_uneven_ = !options_.even_batches && (engine_.num_processes() > 1 || accumulates);
  if (!options_.profiler.empty()) {
    profile_ = std::make_unique<RunProfile>(options_.profiler, engine_.rank().rank);
    listeners_.set_profile(profile_.get());
  }
  engine_.free_memory();
}

// The module may ask for its trainer already.
std::vector<std::shared_ptr<Callback>> Run::given_by(Module& module) {
  attach_context(module, this);
  try {
    return given_callbacks(options_, module);
  } catch (...) {
    attach_context(module, nullptr);
    throw;
  }
}

Run::~Run() {
  attach_context(*module_, nullptr);
  engine_.stepping().set_where(nullptr);
}

// With a checkpoint, a module on the meta device gets no values before those of the checkpoint.
void Run::set_up(std::shared_ptr<DataModule> data, const std::string& ckpt_path) {
  const std::string_view stage = stage_name(stage_);
  data_module_ = std::move(data);
  engine_.prepare_on_local_main([&] { module_->prepare_data(); });
  module_->setup(stage);
  module_->configure_model();
  find_checkpoint(ckpt_path);
  resume_logs();
  agree_on_folders();
  engine_.prepare_module(module_, checkpoint_ ? InitValues::kNone : InitValues::kSeeded);
  listeners_.tell(&Callback::setup, stage);
}

// Rank 0 alone has loggers.
void Run::agree_on_folders() {
  State state;
  engine_.all_or_throw([&] {
    state.set("log_dir", log_.loggers().empty() ? "" : log_.loggers().front()->log_dir());
  });
  log_dir_ = engine_.broadcast_object(state).text("log_dir");
}

void Run::tear_down() {
  const std::string_view stage = stage_name(stage_);
  module_->teardown(stage);
  if (data_module_) data_module_->teardown(stage);
  listeners_.tell(&Callback::teardown, stage);
  engine_.rest();
}

void Run::fit(DataLoader training, std::vector<DataLoader> validation,
              std::shared_ptr<DataModule> data, const std::string& ckpt_path) {
  const Active active(active_);
  // There is nothing to save on a signal until the run has reached its start. Until then a signal ends the
  // process, however long data and checkpoints are read, unless the program has a handler of its own.
  std::optional<SignalGuard> signals;
  if (!options_.exit_on_signal) signals.emplace();
  const CompileStop compile_stop(options_.exit_on_signal ? engine_.xla().get() : nullptr);
  std::optional<AnomalyDetection> anomaly;
  if (options_.detect_anomaly) anomaly.emplace();
  try {
    note_unseeded(training);
    set_up(std::move(data), ckpt_path);
    prepare_fit(std::move(training), std::move(validation));
    const bool resumed = resume();
    if (!signals) signals.emplace();
    call(&Module::on_fit_start, &Callback::on_fit_start);
    if (!resumed) {
      say_what_is_unseeded();
      sanity_check();
    }
    say_what_is_not_trained();
    if (resumed && finished()) {
      log::info(
          "trainer: the checkpoint is at the end of the run, so nothing is left to train; raise "
          "--max-epochs or --max-steps to continue");
    }
    started_ = validated_at_ = std::chrono::steady_clock::now();
    train();
    call(&Module::on_fit_end, &Callback::on_fit_end);
    tear_down();
    log_.finalize(stopping_.signal() != 0 ? "killed" : "success");
    if (profile_) profile_->finish(stage_name(stage_), log_dir_);
    say_where();
  } catch (const Error& error) {
    report(error);
    if (error.id() != "xla.interrupted") throw;
    log::warn("trainer: {}", error.text());
    stopping_.end_by(SignalGuard::received());
  } catch (const std::exception& error) {
    report(error);
    throw;
  }
}

void Run::prepare_fit(DataLoader training, std::vector<DataLoader> validation) {
  engine_.stepping().set_where(
      [this] { return fmt::format("batch {} of epoch {}", progress_.batch, progress_.epoch); });
  set_loaders(std::move(training), std::move(validation));
  warn_of_few_steps();
  if (engine_.is_main_process()) warn_of_intervals(options_, limits_, has_validation());
  if (!module_->automatic_optimization) {
    LEVIN_CHECK(
        options_.accumulate_grad_batches.count() == 1 && limits_.accumulate_otherwise == 1 &&
            options_.accumulate_grad_batches_by_epoch.counts().empty() &&
            options_.gradient_clip_val.value_or(0.0) == 0.0,
        "trainer.manual_optimization",
        "{} uses manual optimization (automatic_optimization = false), so accumulate_grad_batches"
        "{} and gradient_clip_val have no effect; leave them out and do both in training_step",
        module_->name(), options_.engine.train_batch_size > 0 ? ", train_batch_size" : "");
  }
  std::vector<OptimizerConfig> configs = module_->configure_optimizers().list();
  if (change_optimizers_) change_optimizers_(configs);
  engine_.choose_strategy(configs, std::max<int64_t>(limits_.accumulate_otherwise, 1));
  optimizers_ = engine_.prepare_optimizers(configs, limits_.total_steps(), limits_.total_epochs());
  steps_by_closure_ = module_->automatic_optimization && optimizers_.size() == 1 &&
                      optimizers_.front().optimizer().evaluates_losses();
  check_uneven();
  if (!module_->automatic_optimization || steps_by_closure_) call_hook_before_steps();
  if (options_.accumulate_grad_batches.count() == 0) {
    LEVIN_CHECK(engine_.xla() == nullptr, "trainer.accumulate",
                "got accumulate_grad_batches = auto on XLA, whose programs have their own memory; "
                "set a number");
    part_sizes_.emplace(engine_);
  }
  watch_logs();
  if (engine_.rank().world_size == 1 && listeners_.have_writers()) {
    boundary_.emplace(*module_, *train_loader_, log_.train_values(), engine_);
  }
  const auto record = hyper_parameters();
  for (const auto& logger : log_.loggers()) {
    logger->log_hyperparams(record);
    logger->log_graph(*module_);
  }
}

// Gradients are not clipped yet and agree over the ranks, as with automatic optimization.
void Run::call_hook_before_steps() {
  for (PreparedOptimizer& optimizer : optimizers_) {
    optimizer.before_step([this](OptimizerHandle& stepping) {
      module_->on_before_optimizer_step(stepping);
      listeners_.tell_watchers(&Callback::on_before_optimizer_step);
      if (!steps_by_closure_) return;
      module_->configure_gradient_clipping(stepping, options_.gradient_clip_val,
                                           options_.gradient_clip_algorithm);
    });
  }
}

// Parts that the user has put into evaluation mode stay there, as in Lightning.
void Run::say_what_is_not_trained() const {
  int64_t count = 0;
  for (const auto& part : module_->modules()) count += part->is_training() ? 0 : 1;
  if (count == 0) return;
  log::warn(
      "trainer: {} modules are in evaluation mode and stay in it; call train() before fit if you "
      "want to train them",
      count);
}

// Called before configure_model, whose layers are drawn from the run's seed.
void Run::note_unseeded(const DataLoader& training) {
  if (!options_.seed) return;
  if (!module_->is_made_with_seed() && !module_->parameters().empty()) {
    unseeded_ = "the parameters of " + module_->name();
  }
  const bool shuffles = training.options().shuffle && !training.options().seed;
  if (shuffles && training.state_dict().integer("seed") == default_seed()) {
    unseeded_ += std::string(unseeded_.empty() ? "" : " and ") + "the order of the training data";
  }
}

void Run::say_what_is_unseeded() const {
  if (unseeded_.empty()) return;
  log::warn(
      "trainer.seed: {} come from before seed {} was set, so they differ in each run; call "
      "levin::seed_everything({}) before you make the module and the loader, or make them after "
      "the Trainer",
      unseeded_, *options_.seed, *options_.seed);
}

void Run::warn_of_few_steps() const {
  const int64_t steps = limits_.total_steps();
  if (log_.loggers().empty() || steps <= 0 || steps >= options_.log_every_n_steps) return;
  log::warn(
      "trainer: this run has {} steps, but step values are logged every {} steps, so none is "
      "logged; lower --log-every-n-steps to see them",
      steps, options_.log_every_n_steps);
}

void Run::begin_training() {
  log_.collect_in(&log_.epoch_values());
  place_.enter(RunPlace::Loop::kTraining, progress_.epoch,
               progress_.in_epoch ? progress_.batch : RunPlace::kStart);
  call(&Module::on_train_start, &Callback::on_train_start);
  if (profile_) profile_->begin_steps(profile_folder());
}

// A run that stops inside an epoch is saved at that place, and resumes there.
void Run::end_training() {
  log_.collect_in(nullptr);
  listeners_.tell_writers(&Callback::on_train_end);
  engine_.finish_saves();
  if (progress_.in_epoch) log_.publish({&log_.train_values(), &log_.epoch_values()});
  module_->on_train_end();
  listeners_.tell_watchers(&Callback::on_train_end);
}

// A validation that has not run yet may log what is monitored.
void Run::tell_of_monitors() {
  if (std::exchange(told_of_monitors_, true)) return;
  const bool knows_all = !has_validation() || options_.num_sanity_val_steps != 0;
  if (knows_all && engine_.is_main_process()) warn_of_monitors(listeners_, log_);
}

// The number of batches of a stream was unknown before.
void Run::tell_of_no_validation() {
  const bool was_due = has_validation() && limits_.val_epochs != kAcross && !limits_.val_seconds &&
                       (progress_.epoch + 1) % limits_.val_epochs == 0;
  if (!was_due || limits_.counted || skip_epoch_ || limits_.val_interval == kUncounted) return;
  if (std::exchange(told_of_no_validation_, true) || !engine_.is_main_process()) return;
  warn_of_no_validation(limits_, progress_.batch);
}

void Run::forget_logged() {
  log_.train_values().reset_epoch();
  log_.epoch_values().reset_epoch();
}

int64_t Run::num_updates() const {
  int64_t updates = 0;
  for (const PreparedOptimizer& optimizer : optimizers_) updates += optimizer.num_updates();
  return updates;
}

void Run::say_where() const {
  if (engine_.xla()) log::info("xla: {}", engine_.xla()->report().summary());
  if (!log_.loggers().empty()) log::info("trainer: logs are in {}", log_dir());
  const std::string folder = listeners_.checkpoint_folder();
  if (!folder.empty()) log::info("trainer: checkpoints are in {}, the newest is 'last'", folder);
}

void Run::agree_on_stop(bool between_steps) { stopping_.agree(between_steps, is_out_of_time()); }

bool Run::finished() const {
  if (stopping_.signal() != 0) return true;
  if (limits_.max_steps >= 0 && progress_.global_step >= limits_.max_steps) return true;
  if (limits_.max_epochs >= 0 && progress_.epoch >= limits_.max_epochs) return true;
  if (limits_.train_batches == 0) return true;
  return stopping_.is_wanted() && progress_.epoch >= limits_.min_epochs &&
         progress_.global_step >= limits_.min_steps;
}

bool Run::is_out_of_time() const {
  return limits_.seconds && seconds_trained() >= *limits_.seconds;
}

double Run::seconds_trained() const {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - started_;
  return progress_.seconds + now.count();
}

bool Run::at_step_boundary() const { return !in_step_ && limits_.window_complete(progress_.batch); }

bool Run::gradients_wait() const {
  return std::ranges::any_of(optimizers_, [&](const PreparedOptimizer& optimizer) {
    return progress_.global_step % optimizer.frequency() != 0;
  });
}

// A run that is about to stop shows where it stands.
bool Run::should_log() const {
  return logs_by_step() || stopping_.is_requested() || is_out_of_time();
}

bool Run::logs_by_step() const { return progress_.global_step % options_.log_every_n_steps == 0; }

WindowPlace Run::window_place(int64_t index) const {
  return {.window_size = limits_.window_size(index),
          .ends_epoch = limits_.epoch_complete(index + 1),
          .may_weigh = module_->automatic_optimization};
}

int64_t Run::updates_so_far() const {
  return module_->automatic_optimization ? engine_.stepping().state().steps : num_updates();
}

std::string Run::checkpoint_dir() const {
  return (log_dir_.empty() ? options_.default_root_dir : log_dir_) + "/checkpoints";
}

}  // namespace levin::detail
