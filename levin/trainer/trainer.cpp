#include "levin/trainer/trainer.h"

#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "levin/accelerator/engine/process_settings.h"
#include "levin/accelerator/engine/same_options.h"
#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/environment/environment.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/export_program.h"
#include "levin/trainer/run.h"
#include "levin/trainer/tuner/trial.h"
#include "levin/xla/library.h"

namespace levin {
namespace {

int64_t devices_of(const TrainerOptions& options) {
  if (options.tpu_cores > 0) return options.tpu_cores;
  const bool is_auto = options.devices.count() == 0 && options.strategy != "single";
  return is_auto ? -1 : options.devices.count();  // -1: one for each GPU
}

/// State that is offloaded lies in the run's folder.
EngineOptions engine_options(const TrainerOptions& options) {
  EngineOptions engine = options.engine;
  const bool takes_default = engine.offload.state != "no" && engine.offload.folder.empty();
  if (takes_default) engine.offload.folder = options.default_root_dir;
  return engine;
}

AcceleratorOptions accelerator_options(const TrainerOptions& options) {
  const bool is_tpu = options.tpu_cores > 0 && options.accelerator == "auto";
  return {.mixed_precision = options.precision,
          .dataloader_config = {.dispatch_batches = options.dispatch_batches,
                                .even_batches = options.even_batches},
          .accelerator = is_tpu ? "tpu" : options.accelerator,
          .strategy = options.strategy,
          .devices = devices_of(options),
          .num_nodes = options.num_nodes,
          .engine = engine_options(options)};
}

/// The best checkpoint that one of these knows.
std::string best_of(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  for (const auto& callback : callbacks) {
    const auto* writer = dynamic_cast<const ModelCheckpoint*>(callback.get());
    if (writer != nullptr && !writer->best_model_path().empty()) return writer->best_model_path();
  }
  return "";
}

DataLoader needed(std::optional<DataLoader> loader, std::string_view what) {
  LEVIN_CHECK(loader.has_value(), "trainer.dataloader",
              "got no {0}; give a loader, or override {0} of the module or data module", what);
  return std::move(*loader);
}

std::vector<DataLoader> needed(std::vector<DataLoader> loaders, std::string_view what) {
  LEVIN_CHECK(!loaders.empty(), "trainer.dataloader",
              "got no {0}; give a loader, or override {0} of the module or data module", what);
  return loaders;
}

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& of_loaders) {
  std::vector<at::Tensor> outputs;
  for (const auto& own : of_loaders) outputs.insert(outputs.end(), own.begin(), own.end());
  return outputs;
}

Module& there(const std::shared_ptr<Module>& module) {
  LEVIN_CHECK(module != nullptr, "trainer.module", "got an empty module pointer, wanted a module");
  return *module;
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : options_(detail::export_request() ? detail::for_export(std::move(options))
                                        : std::move(options)),
      settings_(std::make_unique<detail::ProcessSettings>()) {
  detail::check_options(options_);
  detail::seed_as_told(options_);
  if (options_.deterministic.is_on()) {
    settings_->use_deterministic_algorithms(options_.deterministic.warns());
  }
  if (options_.benchmark) settings_->use_cudnn_benchmark();
  accelerator_ = std::make_unique<Accelerator>(accelerator_options(options_));
  detail::check_same_options(
      accelerator_->world(), options_as_text(options_),
      {"comm*", "accelerator", "devices", "num_nodes", "tpu_cores", "pjrt_plugin", "logger*",
       "enable_progress_bar", "enable_model_summary", "default_root_dir", "ckpt_path", "seed",
       "benchmark", "exit_on_signal", "offload_folder", "max_memory_gb"});
  trained_ = std::make_unique<detail::Progress>();
}

Trainer::~Trainer() = default;

// A callback of a run that it ends would go on in memory that is no more.
void Trainer::check_idle(std::string_view what) const {
  LEVIN_CHECK(run_ == nullptr || !run_->is_active(), "trainer.run",
              "{} was called during {} of the same Trainer; use another Trainer, or call it after "
              "this one has returned",
              what, detail::stage_name(run_->stage()));
}

void Trainer::set_up(const std::shared_ptr<DataModule>& data, std::string_view stage) {
  check_idle(stage);
  LEVIN_CHECK(data != nullptr, "trainer.dataloader", "got an empty data module pointer");
  accelerator_->prepare_on_local_main([&] { data->prepare_data(); });
  data->setup(stage);
}

detail::Run& Trainer::run() const {
  LEVIN_CHECK(run_ != nullptr, "trainer.run",
              "this is available only during a run; call fit first");
  return *run_;
}

void Trainer::fit(std::shared_ptr<Module> module, DataLoader train,
                  std::optional<DataLoader> validation, FitOptions options) {
  fit_with(std::move(module), std::move(train), detail::list_of(std::move(validation)), nullptr,
           options);
}

void Trainer::fit(std::shared_ptr<Module> module, DataLoader train,
                  std::vector<DataLoader> validation, FitOptions options) {
  fit_with(std::move(module), std::move(train), std::move(validation), nullptr, options);
}

void Trainer::fit(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                  FitOptions options) {
  set_up(data, "fit");
  fit_with(std::move(module), data->train_dataloader(), data->val_dataloaders(), data, options,
           /*can_reload=*/true);
}

void Trainer::fit(std::shared_ptr<Module> module, FitOptions options) {
  there(module);
  fit_with(module, module->train_dataloader(), module->val_dataloaders(), nullptr, options,
           /*can_reload=*/true);
}

void Trainer::note_last_run() {
  if (!run_) return;
  if (run_->stage() == detail::Stage::kFit) *trained_ = run_->progress();
  // A run that evaluates has no callbacks that write checkpoints.
  if (const std::string best = best_of(run_->listeners().all()); !best.empty()) best_ = best;
}

detail::Run& Trainer::begin(std::shared_ptr<Module> module, detail::Stage stage) {
  check_idle(detail::stage_name(stage));
  note_last_run();
  if (stage == detail::Stage::kFit) best_ = "";
  run_.reset();  // first, since a run lets go of its module when it ends
  run_ = std::make_unique<detail::Run>(*this, std::move(module), stage, *trained_);
  return *run_;
}

void Trainer::fit_with(std::shared_ptr<Module> module, std::optional<DataLoader> train,
                       std::vector<DataLoader> validation, std::shared_ptr<DataModule> data,
                       const FitOptions& options, bool can_reload) {
  if (const auto request = detail::export_request()) {
    return export_as(*request, std::move(module), needed(std::move(train), "train_dataloader"));
  }
  DataLoader training = needed(std::move(train), "train_dataloader");
  const std::string ckpt_path = options.ckpt_path.empty() ? options_.ckpt_path : options.ckpt_path;
  const auto change = detail::Trial::run_finders(*this, module, training, data, ckpt_path);
  detail::Run& run = begin(std::move(module), detail::Stage::kFit);
  if (can_reload) run.may_reload_loaders();
  if (change) run.change_optimizers(change);
  run.fit(std::move(training), std::move(validation), std::move(data), ckpt_path);
  interrupted_ = run.stopping().signal();
  end_by_signal();
}

/// Exits after a signal that ended a fit, if the options say so.
void Trainer::end_by_signal() {
  if (interrupted_ == 0 || !options_.exit_on_signal) return;
  run_.reset();
  const xla::Library* xla = xla::loaded_library();
  if (xla == nullptr || !xla->is_compiling()) std::exit(128 + interrupted_);
  std::fflush(nullptr);
  std::_Exit(128 + interrupted_);  // exit() would destroy objects that the plugin's compiler
                                   // still uses
}

/// Does not return.
void Trainer::export_as(const detail::ExportRequest& request, std::shared_ptr<Module> module,
                        DataLoader loader) {
  options_.callbacks.push_back(detail::export_callback(request));
  const std::string ckpt_path = options_.ckpt_path.empty() ? "last" : options_.ckpt_path;
  predict(std::move(module), std::move(loader),
          {.ckpt_path = request.ckpt_path.value_or(ckpt_path)});
  LEVIN_FAIL("trainer.export",
             "the training data has no batch to use as the example input; give it at least one");
}

detail::Run& Trainer::begin_evaluation(std::shared_ptr<Module> module, detail::Stage stage,
                                       const EvaluateOptions& options) {
  // Looked up before the fit that knows the best one is forgotten.
  const std::string path = options.ckpt_path == "best" ? best_checkpoint() : options.ckpt_path;
  detail::Run& run = begin(std::move(module), stage);
  run.take_weights_from(path);
  return run;
}

std::string Trainer::best_checkpoint() const {
  for (const std::string& best : {run_ ? best_of(run_->listeners().all()) : "", best_.value_or(""),
                                  best_of(options_.callbacks)}) {
    if (!best.empty()) return best;
  }
  LEVIN_CHECK(!best_, "trainer.ckpt_path",
              "got 'best', but this Trainer's fit has ranked no checkpoint; name a checkpoint "
              "folder, or 'last'");
  return "best";  // of an earlier program, to be found on disk
}

double Metrics::at(const std::string& name) const {
  const auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [other, value] : *this) names.push_back(other);
  LEVIN_FAIL("trainer.metric",
             "no metric '{}' was logged in this run; there {}; log it in the loop that ran, or ask "
             "with find()",
             name, names.empty() ? "are none" : fmt::format("are {}", fmt::join(names, ", ")));
}

Metrics Trainer::validate(std::shared_ptr<Module> module, DataLoader loader,
                          const EvaluateOptions& options) {
  return validate(std::move(module), std::vector{std::move(loader)}, options);
}

Metrics Trainer::validate(std::shared_ptr<Module> module, std::vector<DataLoader> loaders,
                          const EvaluateOptions& options) {
  loaders = needed(std::move(loaders), "val_dataloader");
  return begin_evaluation(std::move(module), detail::Stage::kValidate, options)
      .evaluate(std::move(loaders), nullptr);
}

Metrics Trainer::validate(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                          const EvaluateOptions& options) {
  set_up(data, "validate");
  return begin_evaluation(std::move(module), detail::Stage::kValidate, options)
      .evaluate(needed(data->val_dataloaders(), "val_dataloader"), data);
}

Metrics Trainer::validate(std::shared_ptr<Module> module, const EvaluateOptions& options) {
  std::vector<DataLoader> loaders = there(module).val_dataloaders();
  return validate(std::move(module), std::move(loaders), options);
}

Metrics Trainer::test(std::shared_ptr<Module> module, DataLoader loader,
                      const EvaluateOptions& options) {
  return test(std::move(module), std::vector{std::move(loader)}, options);
}

Metrics Trainer::test(std::shared_ptr<Module> module, std::vector<DataLoader> loaders,
                      const EvaluateOptions& options) {
  loaders = needed(std::move(loaders), "test_dataloader");
  return begin_evaluation(std::move(module), detail::Stage::kTest, options)
      .evaluate(std::move(loaders), nullptr);
}

Metrics Trainer::test(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                      const EvaluateOptions& options) {
  set_up(data, "test");
  return begin_evaluation(std::move(module), detail::Stage::kTest, options)
      .evaluate(needed(data->test_dataloaders(), "test_dataloader"), data);
}

Metrics Trainer::test(std::shared_ptr<Module> module, const EvaluateOptions& options) {
  std::vector<DataLoader> loaders = there(module).test_dataloaders();
  return test(std::move(module), std::move(loaders), options);
}

std::vector<at::Tensor> Trainer::predict(std::shared_ptr<Module> module, DataLoader loader,
                                         const EvaluateOptions& options) {
  return predict(std::move(module), std::vector{std::move(loader)}, options).front();
}

std::vector<std::vector<at::Tensor>> Trainer::predict(std::shared_ptr<Module> module,
                                                      std::vector<DataLoader> loaders,
                                                      const EvaluateOptions& options) {
  loaders = needed(std::move(loaders), "predict_dataloader");
  return begin_evaluation(std::move(module), detail::Stage::kPredict, options)
      .predict(std::move(loaders), nullptr, options.return_predictions);
}

std::vector<at::Tensor> Trainer::predict(std::shared_ptr<Module> module,
                                         std::shared_ptr<DataModule> data,
                                         const EvaluateOptions& options) {
  set_up(data, "predict");
  return flattened(begin_evaluation(std::move(module), detail::Stage::kPredict, options)
                       .predict(needed(data->predict_dataloaders(), "predict_dataloader"), data,
                                options.return_predictions));
}

std::vector<at::Tensor> Trainer::predict(std::shared_ptr<Module> module,
                                         const EvaluateOptions& options) {
  std::vector<DataLoader> loaders = there(module).predict_dataloaders();
  return flattened(predict(std::move(module), std::move(loaders), options));
}

int64_t Trainer::current_epoch() const { return run().current_epoch(); }
int64_t Trainer::global_step() const { return run().global_step(); }
int64_t Trainer::num_training_batches() const {
  const int64_t batches = run().limits().train_batches;
  return batches == detail::kUncounted ? -1 : batches;
}
int64_t Trainer::dataloader_index() const { return run().dataloader_index(); }
std::vector<int64_t> Trainer::num_evaluation_batches() const {
  return run().num_evaluation_batches();
}
std::vector<int64_t> Trainer::num_val_batches() const { return run().num_val_batches(); }
std::vector<int64_t> Trainer::num_sanity_val_batches() const {
  return run().num_sanity_val_batches();
}
int64_t Trainer::accumulate_grad_batches() const { return run().limits().accumulate; }
std::shared_ptr<ModelCheckpoint> Trainer::checkpoint_callback() const {
  const auto all = callbacks_of<ModelCheckpoint>();
  return all.empty() ? nullptr : all.front();
}
std::shared_ptr<EarlyStopping> Trainer::early_stopping_callback() const {
  const auto all = callbacks_of<EarlyStopping>();
  return all.empty() ? nullptr : all.front();
}
int64_t Trainer::node_rank() const { return comm::read_environment().node_rank; }
int64_t Trainer::batches_done() const { return run().progress().batch; }
int64_t Trainer::estimated_stepping_batches() const { return run().limits().total_steps(); }
bool Trainer::has_validation() const { return run().has_validation(); }
bool Trainer::validation_due() const { return run().validation_due(); }
bool Trainer::sanity_checking() const { return run().sanity_checking(); }
bool Trainer::should_log() const { return run().should_log(); }
bool Trainer::at_step_boundary() const { return run().at_step_boundary(); }
Metrics Trainer::callback_metrics() const { return run().log().metrics(); }

double Trainer::monitored(const std::string& name) const { return run().monitored(name); }

void Trainer::log_metrics(const Scalars& scalars) { run().log().log_metrics(scalars); }
void Trainer::log_row(const Scalars& scalars) { run().log().log_row(scalars); }
Scalars Trainer::progress_bar_metrics() const { return run().bar_values(); }
const std::vector<PreparedOptimizer>& Trainer::optimizers() const { return run().optimizers(); }
const std::vector<std::shared_ptr<Callback>>& Trainer::callbacks() const {
  return run().listeners().all();
}
void Trainer::request_stop(std::string reason) { run().stopping().request(std::move(reason)); }
bool Trainer::stop_requested() const { return run().stopping().is_requested(); }

const graph::CompiledReport& Trainer::compile_report() const {
  return run().compiled_step().report();
}

void Trainer::save_checkpoint(const std::string& folder, const SaveCheckpointOptions& options,
                              SaveThen then) {
  engine_of(*accelerator_).write_checkpoint(folder, run().checkpoint(), options, std::move(then));
}

void detail::pass_training_data(Trainer& trainer) { trainer.run().pass_training_data(); }
void detail::load_weights_of(Trainer& trainer, const std::string& checkpoint) {
  trainer.run().load_weights_of(checkpoint);
}

std::string Trainer::resumed_from() const { return run().resumed_from(); }
bool Trainer::resumed_in_place() const { return run().resumed_in_place(); }

const std::vector<std::shared_ptr<Logger>>& Trainer::loggers() {
  if (loggers_.empty()) {
    loggers_ = options_.logger.make(options_.default_root_dir + "/levin_logs");
  }
  return loggers_;
}

std::string Trainer::log_dir() const { return run().log_dir(); }
std::string Trainer::checkpoint_dir() const { return run().checkpoint_dir(); }

}  // namespace levin
