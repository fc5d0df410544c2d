// The loops without gradients: validation inside a fit, validate, test and predict.

#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>

#include <array>
#include <utility>

#include "levin/accelerator/compiled/graph_file.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/module/evaluation_mode.h"
#include "levin/trainer/run.h"

namespace levin::detail {

namespace {

/// The module's functions for one stage.
struct EvaluationHooks {
  void (Module::*start)();
  void (Module::*end)();
  void (Module::*epoch_start)();
  void (Module::*epoch_end)();
  void (Module::*batch_start)(const Batch&, int64_t);
};

const EvaluationHooks& hooks_of(Stage stage) {
  static constexpr EvaluationHooks kValidation = {
      &Module::on_validation_start, &Module::on_validation_end, &Module::on_validation_epoch_start,
      &Module::on_validation_epoch_end, &Module::on_validation_batch_start};
  static constexpr EvaluationHooks kTest = {
      &Module::on_test_start, &Module::on_test_end, &Module::on_test_epoch_start,
      &Module::on_test_epoch_end, &Module::on_test_batch_start};
  static constexpr EvaluationHooks kPredict = {
      &Module::on_predict_start, &Module::on_predict_end, &Module::on_predict_epoch_start,
      &Module::on_predict_epoch_end, &Module::on_predict_batch_start};
  return stage == Stage::kPredict ? kPredict : stage == Stage::kTest ? kTest : kValidation;
}

// Names for the profiler, by Stage.
constexpr std::array kNextOf = {"train_dataloader_next", "val_dataloader_next",
                                "test_dataloader_next", "predict_dataloader_next"};
constexpr std::array kStepOf = {"training_step", "validation_step", "test_step", "predict_step"};

/// Returns the rows without samples that fill up the batch.
at::Tensor of_samples(const at::Tensor& output, int64_t rows, int64_t samples) {
  const bool has_rows = output.defined() && output.dim() > 0 && output.size(0) == rows;
  return has_rows && samples < rows ? output.narrow(0, 0, samples) : output;
}

}  // namespace

std::optional<int64_t> size_of(const DataLoader& loader) {
  return loader.has_size() ? std::optional(loader.size()) : std::nullopt;
}

/// The batches of the rank that has most: one without a sample evaluates with the others, and a fraction of
/// the batches is the same count everywhere.
std::optional<int64_t> Run::evaluation_size(const DataLoader& loader) {
  const std::optional<int64_t> own = size_of(loader);
  if (!own) return own;
  return engine_.reduce(at::full({1}, *own, at::kLong), ReduceOp::kMax).item<int64_t>();
}

std::vector<int64_t> Run::num_val_batches() const {
  std::vector<int64_t> batches;
  for (const EvaluationLoader& loader : val_loaders_) {
    batches.push_back(loader.batches == kUncounted ? -1 : loader.batches);
  }
  return batches;
}

std::vector<int64_t> Run::num_sanity_val_batches() const {
  const int64_t most = options_.fast_dev_run > 0 ? 0 : options_.num_sanity_val_steps;
  std::vector<int64_t> batches = num_val_batches();
  if (most < 0) return batches;
  for (int64_t& each : batches) each = each < 0 ? most : std::min(each, most);
  return batches;
}

void Run::look_at_time() {
  if (!limits_.val_seconds || !has_validation() || progress_.batch == 0 || !at_step_boundary())
    return;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - validated_at_;
  const at::Tensor is_up = at::full({1}, since.count() >= *limits_.val_seconds, at::kLong);
  validation_time_is_up_ = engine_.reduce(is_up, ReduceOp::kMax).item<int64_t>() != 0;
}

bool Run::validation_due() const {
  if (!has_validation() || progress_.batch == 0 || !at_step_boundary()) return false;
  const bool across = limits_.val_epochs == kAcross;
  if (!across && (progress_.epoch + 1) % limits_.val_epochs != 0) return false;
  if (limits_.val_seconds) return validation_time_is_up_;
  // Several intervals may end inside one accumulation window: they are one validation.
  if (across) {
    return progress_.total_batches() / limits_.val_interval >
           progress_.total_validated / limits_.val_interval;
  }
  if (limits_.val_interval == kUncounted) {
    return limits_.epoch_complete(progress_.batch) && progress_.validated < progress_.batch;
  }
  return progress_.batch / limits_.val_interval > progress_.validated / limits_.val_interval;
}

void Run::validate_in_fit() {
  // A checkpoint saved at its end counts this validation as done; one that throws does not count.
  const int64_t before = std::exchange(progress_.validated, progress_.batch);
  const int64_t total_before = std::exchange(progress_.total_validated, progress_.total_batches());
  validation_time_is_up_ = false;
  const RandomPlace random(engine_.device());
  try {
    evaluation_loop(Stage::kValidate, val_loaders_, kUncounted, nullptr);
    validated_at_ = std::chrono::steady_clock::now();
    step_.check_next();
  } catch (...) {
    progress_.validated = before;
    progress_.total_validated = total_before;
    random.go_back();
    throw;
  }
}

void Run::sanity_check() {
  const int64_t wanted = options_.num_sanity_val_steps;
  if (!has_validation() || wanted == 0 || options_.fast_dev_run > 0) return;
  if (is_graph_without_memory()) return;  // it has nothing that could be checked
  // Its random draws must not change the run.
  const State random = random_state();
  sanity_checking_ = true;
  log_.be_silent(true);
  listeners_.tell_watchers(&Callback::on_sanity_check_start);
  evaluation_loop(Stage::kValidate, val_loaders_, wanted < 0 ? kUncounted : wanted, nullptr);
  listeners_.tell_watchers(&Callback::on_sanity_check_end);
  sanity_checking_ = false;
  log_.be_silent(false);
  load_random_state(random);
}

Metrics Run::evaluate(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data) {
  run_evaluation(std::move(loaders), std::move(data), nullptr);
  return log_.results();
}

std::vector<std::vector<at::Tensor>> Run::predict(std::vector<DataLoader> loaders,
                                                  std::shared_ptr<DataModule> data,
                                                  bool keeps_outputs) {
  const size_t count = loaders.size();
  std::vector<at::Tensor> outputs;
  run_evaluation(std::move(loaders), std::move(data), keeps_outputs ? &outputs : nullptr);
  if (!keeps_outputs) return std::vector<std::vector<at::Tensor>>(count);
  std::vector<std::vector<at::Tensor>> of_loaders;
  auto begin = outputs.begin();
  for (const int64_t count : predicted_) {
    const auto end = outputs.begin() + count;
    of_loaders.emplace_back(begin, end);
    begin = end;
  }
  return of_loaders;
}

void Run::run_evaluation(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data,
                         std::vector<at::Tensor>* outputs) {
  const Active active(active_);
  try {
    evaluate_all(std::move(loaders), std::move(data), outputs);
  } catch (const std::exception& error) {
    note_where_it_failed();
    explain(error);
    listeners_.tell_of_exception(error);
    tell_data_of_exception(error);
    log_.finalize("failed");
    throw;
  }
}

EvaluationLoader Run::prepare_evaluation(DataLoader loader, std::string_view option,
                                         const Portion& limit) {
  loader.set_epoch(0);  // a run before may have left it in an epoch's middle
  loader = engine_.prepare_loader(std::move(loader), LoaderRole::kEvaluation);
  const std::optional<int64_t> size = evaluation_size(loader);
  const int64_t batches = options_.fast_dev_run > 0
                              ? std::min(options_.fast_dev_run, size.value_or(kUncounted))
                              : portion_of(size, option, limit);
  return {std::move(loader), batches};
}

void Run::evaluate_all(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data,
                       std::vector<at::Tensor>* outputs) {
  set_up(std::move(data), weights_from_);
  load_weights();
  const auto [option, limit] =
      stage_ == Stage::kPredict ? std::pair("limit_predict_batches", options_.limit_predict_batches)
      : stage_ == Stage::kTest  ? std::pair("limit_test_batches", options_.limit_test_batches)
                                : std::pair("limit_val_batches", options_.limit_val_batches);
  std::vector<EvaluationLoader> prepared;
  for (DataLoader& loader : loaders) {
    prepared.push_back(prepare_evaluation(std::move(loader), option, limit));
  }
  if (profile_) profile_->begin_steps(profile_folder());
  evaluation_loop(stage_, prepared, kUncounted, outputs);
  tear_down();
  log_.finalize("success");
  if (profile_) profile_->finish(stage_name(stage_), log_dir_);
}

RunPlace::Loop Run::loop_of(Stage stage) const {
  if (sanity_checking_) return RunPlace::Loop::kSanityCheck;
  if (stage_ == Stage::kFit) return RunPlace::Loop::kValidation;
  return stage == Stage::kPredict ? RunPlace::Loop::kPredict
         : stage == Stage::kTest  ? RunPlace::Loop::kTest
                                  : RunPlace::Loop::kValidate;
}

void Run::evaluation_loop(Stage stage, std::vector<EvaluationLoader>& loaders, int64_t most,
                          std::vector<at::Tensor>* outputs) {
  const EvaluationHooks& hooks = hooks_of(stage);
  const std::string_view name = stage_name(stage);
  const RunPlace around = place_;
  place_.enter(loop_of(stage), progress_.epoch, RunPlace::kStart);
  const EvaluationMode mode(*module_);
  LoggedValues& values = log_.evaluation_values();
  values.reset_epoch();
  engine_.strategy().agree_on_buffers();
  LoggedValues* const before = log_.collect_in(stage == Stage::kPredict ? nullptr : &values);
  log_.begin_batch(log_.evaluation_values(), 1);
  evaluation_batches_.clear();
  for (const EvaluationLoader& loader : loaders) {
    const int64_t batches = std::min(loader.batches, most);
    evaluation_batches_.push_back(batches == kUncounted ? -1 : batches);
  }
  ((*module_).*hooks.start)();
  listeners_.tell_watchers(&Callback::on_evaluation_start, name);
  ((*module_).*hooks.epoch_start)();
  for (size_t i = 0; i < loaders.size(); ++i) {
    const Active evaluating(evaluates_batches_);
    dataloader_index_ = static_cast<int64_t>(i);
    values.set_dataloader_index(loaders.size() > 1 ? std::optional(dataloader_index_)
                                                   : std::nullopt);
    evaluate_loader(stage, loaders[i], most, outputs);
    if (outputs != nullptr) predicted_.push_back(std::ssize(*outputs));
  }
  dataloader_index_ = 0;
  values.set_dataloader_index(std::nullopt);
  place_.enter(RunPlace::kEnd);
  engine_.strategy().end_evaluation();
  log_.begin_batch(log_.evaluation_values(), 1);
  ((*module_).*hooks.epoch_end)();
  log_.publish({&log_.evaluation_values()});
  log_.collect_in(nullptr);
  ((*module_).*hooks.end)();
  listeners_.tell_watchers(&Callback::on_evaluation_end, name);
  log_.collect_in(before);
  if (!sanity_checking_) listeners_.tell_writers(&Callback::on_evaluation_end, name);
  place_ = around;
}

// The run drops the values that these steps log.
void Run::pass_training_data() {
  LoggedValues& values = log_.evaluation_values();
  LoggedValues* const before = log_.collect_in(&values);
  engine_.strategy().agree_on_buffers();
  train_loader_->set_epoch(progress_.epoch);
  Batch batch;
  for (int64_t index = 0; index < limits_.train_batches && train_loader_->next(batch); ++index) {
    batch = transfer(std::move(batch));
    log_.begin_batch(values, batch.size() - train_loader_->added());
    const at::NoGradGuard no_grad;
    const ForwardGuards guards = engine_.forward_guards();
    module_->training_step(batch, index);
    engine_.placement().end_batch();
    batch = Batch();
  }
  engine_.strategy().end_evaluation();
  engine_.strategy().agree_on_buffers();
  engine_.stepping().drop_window();
  values.reset_epoch();
  log_.collect_in(before);
}

void Run::evaluate_loader(Stage stage, EvaluationLoader& loader, int64_t most,
                          std::vector<at::Tensor>* outputs) {
  loader.loader.set_epoch(0);
  const int64_t batches = std::min(loader.batches, most);
  for (int64_t index = 0; index < batches; ++index) {
    place_.enter(index);
    Batch batch;
    if (!next_batch(loader.loader, kNextOf[static_cast<size_t>(stage)], batch)) break;
    const int64_t samples = batch.size() - loader.loader.added();
    evaluate_batch(stage, std::move(batch), index, samples, outputs);
    if (profile_ && stage_ != Stage::kFit) profile_->end_step();
  }
}

void Run::evaluate_batch(Stage stage, Batch batch, int64_t index, int64_t samples,
                         std::vector<at::Tensor>* outputs) {
  const std::string_view name = stage_name(stage);
  batch = transfer(std::move(batch));
  log_.begin_batch(log_.evaluation_values(), samples);
  ((*module_).*hooks_of(stage).batch_start)(batch, index);
  listeners_.tell_watchers(&Callback::on_evaluation_batch_start, name, batch, index);
  at::Tensor output;
  {
    // Inference mode also spares the version counters; tensors made in it cannot be trained on.
    const at::NoGradGuard no_grad;
    const c10::InferenceMode inference(options_.inference_mode);
    const ForwardGuards guards = engine_.evaluation_guards();
    const ActionScope scope(profile_.get(),
                            [&] { return action(kStepOf[static_cast<size_t>(stage)]); });
    if (stage == Stage::kPredict) {
      output = module_->predict_step(batch, index);
      output = of_samples(output, batch.size(), samples);
    } else if (stage == Stage::kTest) {
      module_->test_step(batch, index);
    } else {
      module_->validation_step(batch, index);
    }
  }
  engine_.placement().end_batch();
  if (stage == Stage::kPredict) {
    module_->on_predict_batch_end(output, batch, index);
    listeners_.tell_watchers(&Callback::on_predict_batch_end, output, batch, index);
    if (outputs != nullptr) outputs->push_back(output);
  } else if (stage == Stage::kTest) {
    module_->on_test_batch_end(batch, index);
  } else {
    module_->on_validation_batch_end(batch, index);
  }
  listeners_.tell_watchers(&Callback::on_evaluation_batch_end, name, batch, index);
  log_.write_evaluation_row();
}

}  // namespace levin::detail
