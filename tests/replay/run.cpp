#include "tests/replay/run.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "levin/accelerator/engine/engine.h"
#include "tests/trainer/small_run.h"

namespace levin::test {
namespace {

constexpr uint64_t kSeed = 11;

struct SetFields : FieldVisitor {
  const Settings& settings;
  explicit SetFields(const Settings& settings) : settings(settings) {}
  void visit(Field field) override {
    if (const auto found = settings.find(field.name); found != settings.end()) {
      field.set(found->second);
    }
  }
};

struct FindField : FieldVisitor {
  std::string name;
  bool found = false;
  explicit FindField(std::string name) : name(std::move(name)) {}
  void visit(Field field) override { found = found || field.name == name; }
};

/// What a row before this one may have left otherwise.
void begin_row() {
  torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
  at::set_num_threads(1);
  torch::manual_seed(3);
}

at::Tensor letters_of(const std::string& text) {
  return torch::tensor(std::vector<uint8_t>(text.begin(), text.end()));
}

/// The row's step, watched.
struct Watched : Own {
  const StepCase& row;
  Outcome& outcome;
  Trainer* trainer = nullptr;
  int64_t batches = 0;
  Tensors losses;  ///< as they were given, to be looked at when the run has ended

  Watched(const StepCase& row, Outcome& outcome) : row(row), outcome(outcome) {
    automatic_optimization = !row.is_manual;
    if (row.build) row.build(*this);
    if (named_children().is_empty()) {
      net = register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                                         torch::nn::Linear(8, 3)));
    }
  }
  at::Tensor training_step(const Batch& batch, int64_t index) override {
    return row.takes_index ? row.step(*this, batch, index) : Own::training_step(batch, index);
  }
  at::Tensor training_step(const Batch& batch) override { return row.step(*this, batch, -1); }
  void validation_step(const Batch& batch, int64_t) override {
    log("val", net ? plain_loss(*this, batch) : batch["x"].sum());
  }
  OptimizerConfig configure_optimizers() override {
    return row.optimizer ? row.optimizer(*this) : optim::adam({.lr = 1e-2});
  }
  void on_train_epoch_start() override {
    if (row.on_epoch_start) row.on_epoch_start(*this);
  }
  bool on_train_batch_start(const Batch&, int64_t) override {
    if (row.before) row.before(*this, *trainer, batches);
    return true;
  }
  void on_train_batch_end(const at::Tensor& loss, const Batch& batch, int64_t) override {
    const std::string step = " after step " + std::to_string(batches++);
    losses.push_back(loss);
    outcome.add("loss" + step, loss);
    for (const auto& [name, value] : kept) outcome.add(name + step, value);
    outcome.add("number of kept tensors" + step, torch::tensor(static_cast<int64_t>(list.size())));
    for (const auto& [name, value] : batch) outcome.add("batch's " + name + step, value);
    StepState state = engine_of(trainer->accelerator()).stepping().state();
    state.weighing.is_agreed = false;  // no ranks ask each other in a step that is recorded
    outcome.add("the engine's state" + step, letters_of(state.text()));
  }
};

void add_state(Outcome& outcome, const std::string& name, const State& state) {
  for (const auto& [key, value] : state.values()) {
    const std::string full = name + "." + key;
    if (const auto* child = std::get_if<State>(&value)) add_state(outcome, full, *child);
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) outcome.add(full, *tensor);
    if (const auto* number = std::get_if<double>(&value)) {
      outcome.add(full, torch::tensor(*number, torch::kDouble));
    }
    if (const auto* count = std::get_if<int64_t>(&value)) outcome.add(full, torch::tensor(*count));
  }
}

void add_end(Outcome& outcome, Watched& own, Trainer& trainer) {
  for (const auto& item : own.named_parameters()) {
    outcome.add(item.key(), item.value());
    outcome.add("gradient of " + item.key(), item.value().grad());
  }
  for (const auto& item : own.named_buffers()) outcome.add(item.key(), item.value());
  for (size_t i = 0; i < own.list.size(); ++i)
    outcome.add(c10::str("kept tensor ", i), own.list[i]);
  for (size_t i = 0; i < own.losses.size(); ++i) {
    outcome.add(c10::str("loss of step ", i, ", at the end"), own.losses[i]);
  }
  for (const PreparedOptimizer& optimizer : trainer.optimizers()) {
    add_state(outcome, "optimizer", optimizer.state_dict());
  }
}

/// Adds what an optimizer holds while there is one.
struct AtTheEnd : Callback {
  Outcome& outcome;
  Watched& own;
  AtTheEnd(Outcome& outcome, Watched& own) : outcome(outcome), own(own) {}
  std::string state_key() const override { return "at_the_end"; }
  void on_train_end(Trainer& trainer, levin::Module&) override { add_end(outcome, own, trainer); }
};

bool is_same(const at::Tensor& wanted, const at::Tensor& got, double tolerance) {
  if (wanted.defined() != got.defined()) return false;
  if (!wanted.defined()) return true;
  if (wanted.scalar_type() != got.scalar_type() || wanted.sizes() != got.sizes()) return false;
  if (tolerance > 0) return at::allclose(got, wanted, tolerance, tolerance, /*equal_nan=*/true);
  return std::memcmp(wanted.const_data_ptr(), got.const_data_ptr(), wanted.nbytes()) == 0;
}

std::string number_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.numel() == 1 && !tensor.is_complex()) {
    return c10::str(tensor.to(at::kDouble).item<double>());
  }
  return c10::str(tensor.scalar_type(), tensor.sizes(), ", sum ",
                  tensor.sum().item().to<c10::complex<double>>().real());
}

}  // namespace

void Outcome::add(const std::string& name, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  at::Tensor copy;
  if (value.defined()) {
    copy = value.detach().cpu().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
  }
  values.emplace_back(name, std::move(copy));
}

bool has_option(const std::string& name) {
  FindField field(name);
  TrainerOptions().fields(field);
  return field.found;
}

Outcome run(const StepCase& row, const Settings& settings) {
  begin_row();
  const Scratch scratch;
  Outcome outcome;
  auto options = small_run::quiet(scratch.str());
  const auto recorder = std::make_shared<small_run::Recorder>();
  recorder->folder = scratch.str();
  const auto own = std::make_shared<Watched>(row, outcome);
  options.logger = recorder;
  options.callbacks = {std::make_shared<AtTheEnd>(outcome, *own)};
  options.enable_checkpointing = false;
  options.accelerator = "cpu";
  options.max_epochs = row.epochs;
  options.log_every_n_steps = 1;
  options.seed = kSeed;
  if (row.options) row.options(options);
  SetFields fields(settings);
  options.fields(fields);
  try {
    Trainer trainer(options);
    own->trainer = &trainer;
    const DatasetPtr data = row.data ? row.data() : default_data();
    std::optional<DataLoader> validation;
    if (row.validates) validation.emplace(data, DataLoaderOptions{.batch_size = 16});
    try {
      trainer.fit(own,
                  DataLoader(data, {.batch_size = row.batch_size, .shuffle = true, .seed = kSeed}),
                  validation);
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    outcome.report = trainer.compile_report();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  for (const auto& logged : recorder->rows) {
    outcome.logged.push_back(
        c10::str(logged.name, " of step ", logged.step, ", epoch ", logged.epoch));
    outcome.add(outcome.logged.back(), torch::tensor(logged.value, torch::kDouble));
  }
  return outcome;
}

Outcome run(const FunctionCase& row, const Settings& settings) {
  begin_row();
  Outcome outcome;
  AcceleratorOptions options;
  options.accelerator = "cpu";
  SetFields fields(settings);
  options.fields(fields);
  try {
    Accelerator accelerator(options);
    const auto seed = settings.find("seed");
    torch::manual_seed(seed == settings.end() ? kSeed : std::stoul(seed->second));
    begin_arguments(accelerator.device());
    const Subject subject = row.make(accelerator);
    std::vector<Tensors> results;
    for (int64_t i = 0; i < row.calls; ++i) {
      results.push_back(subject.call(i));
      for (const at::Tensor& result : results.back()) {
        outcome.add(c10::str("result of call ", i), result);
      }
      for (const at::Tensor& state : subject.state ? subject.state() : Tensors()) {
        outcome.add(c10::str("state after call ", i), state);
      }
    }
    for (const at::Tensor& result : std::views::join(results))
      outcome.add("result at the end", result);
    outcome.report = subject.report();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

std::string difference(const Outcome& wanted, const Outcome& got, double tolerance) {
  if (got.error != wanted.error) {
    return "ended with: " + got.error.substr(0, got.error.find('\n'));
  }
  for (size_t i = 0; i < std::min(wanted.values.size(), got.values.size()); ++i) {
    const auto& [name, value] = wanted.values[i];
    // Another device keeps no gradients that nothing reads.
    if (tolerance > 0 && name.starts_with("gradient of ")) continue;
    if (got.values[i].first != name) return name + " is missing, came " + got.values[i].first;
    if (is_same(value, got.values[i].second, tolerance)) continue;
    return name + " is " + number_of(got.values[i].second) + ", wanted " + number_of(value);
  }
  if (wanted.values.size() != got.values.size()) {
    return c10::str(got.values.size(), " values, wanted ", wanted.values.size());
  }
  return "";
}

std::string unwanted(Wanted wanted, const std::string& word, const std::string& function,
                     const graph::CompiledReport& report) {
  const bool ran = report.replayed + report.checked > 0;
  if (wanted == Wanted::kReplayed && !ran) return "it is not replayed";
  if (wanted == Wanted::kRefused) {
    const bool is_told = std::ranges::any_of(report.refusals, [&](const std::string& refusal) {
      return refusal.find(word) != std::string::npos &&
             (function.empty() || refusal.find("levin::test::" + function) != std::string::npos);
    });
    return is_told ? "" : "no refusal says '" + word + "' in " + function;
  }
  if (!ran && report.refusals.empty()) return "it is neither replayed nor refused";
  return "";
}

}  // namespace levin::test
