#include "tests/oracle/lightning_model.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "levin/optim/optim.h"

namespace lightning_grid {
namespace {

struct Rows : levin::Logger {
  explicit Rows(Scene& run) : run(run) {}
  void log_metrics(const levin::Scalars& values, int64_t epoch, int64_t step) override {
    json rates = json::object(), rest = json::object();
    for (const auto& [name, value] : values) {
      (name.starts_with("lr-") ? rates : rest)[name] = number(value);
    }
    const json rate_row = {step, epoch, rates};
    json& rate_rows = run.record->rate_rows;
    if (!rates.empty() && (rate_rows.empty() || rate_rows.back() != rate_row)) {
      rate_rows.push_back(rate_row);
    }
    if (!rest.empty()) run.record->rows.push_back({step, epoch, rest});
  }
  void log_hyperparams(const std::map<std::string, std::string>&) override {}
  void flush() override {}
  std::string log_dir() const override { return ""; }
  Scene& run;
};

struct Model : levin::Module {
  torch::nn::Linear a{nullptr}, b{nullptr};
  Scene* run;
  std::map<std::string, int64_t> calls;
  int64_t steps = 0;

  explicit Model(Scene& scene) : run(&scene) {
    a = register_module("a", torch::nn::Linear(3, 2));
    b = register_module("b", torch::nn::Linear(2, 1));
    to(at::kDouble);
    const torch::NoGradGuard guard;
    int64_t place = 0;
    for (at::Tensor& parameter : parameters()) {
      for (int64_t i = 0; i < parameter.numel(); ++i) {
        parameter.view(-1)[i] = 0.5 * std::sin(static_cast<double>(1 + i + 5 * place));
      }
      ++place;
    }
    automatic_optimization = !run->setting.value("manual", false);
  }

  bool listed(const char* list) const {
    const json steps_of = run->setting.value(list, json::array());
    return std::find(steps_of.begin(), steps_of.end(), steps) != steps_of.end();
  }
  int64_t optimizers() const { return run->setting.value("optimizer", "sgd") == "two" ? 2 : 1; }

  void tell(char letter, const std::string& hook) {
    run->record->module.tell(letter, current_epoch(), global_step());
    if (hook.starts_with("on_")) log_from(hook, {});
  }

  void log_from(const std::string& hook, const at::Tensor& loss) {
    static const json kUsual =
        json::parse(R"([{"in": "training_step", "name": "loss", "value": "loss"},
                                               {"in": "validation_step", "name": "val", "value": "loss"}])");
    for (const json& entry : run->setting.value("log", kUsual)) {
      if (entry["in"] != hook) continue;
      const std::string name = entry["name"], kind = entry["value"];
      levin::LogOptions options;
      options.prog_bar = entry.value("prog_bar", false);
      if (entry.contains("on_step")) options.on_step = entry["on_step"].get<bool>();
      if (entry.contains("on_epoch")) options.on_epoch = entry["on_epoch"].get<bool>();
      options.reduce = entry.value("reduce", "mean");
      const auto call = static_cast<double>(calls[hook + "/" + name]++);
      if (kind == "loss") {
        log(name, loss, options);
      } else if (kind == "rise") {
        log(name, 0.25 * call, options);
      } else if (kind == "fall") {
        log(name, 1.0 - 0.25 * call, options);
      } else {
        log(name, std::sin(0.5 * call + static_cast<double>(hook.size())), options);
      }
    }
  }

  at::Tensor loss(const levin::Batch& batch) {
    return torch::nn::functional::mse_loss(b(a(batch["x"])), batch["y"]);
  }
  void read(char kind, const levin::Batch& batch, int64_t index) {
    run->record->reading.read(kind, current_epoch(), index, batch["i"][0].item<int64_t>(),
                              batch["i"].numel());
  }

  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    tell('S', "training_step");
    read('t', batch, index);
    json rates = json::array();
    for (int64_t i = 0; i < optimizers(); ++i) rates.push_back(optimizer(i).learning_rate());
    run->record->rate(rates);
    if (listed("sleep")) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    if (listed("stop")) run->trainer->request_stop("the setting says so");
    const bool skips = listed("skip");
    ++steps;
    const at::Tensor value = loss(batch);
    log_from("training_step", value);
    if (skips) return {};
    if (!automatic_optimization) optimize(value, index);
    return value;
  }
  void optimize(const at::Tensor& value, int64_t index) {
    for (int64_t i = 0; i < optimizers(); ++i) optimizer(i).zero_grad();
    manual_backward(value);
    optimizer(0).step();
    if (optimizers() > 1 && index % 2 == 0) optimizer(1).step();
  }
  void validation_step(const levin::Batch& batch, int64_t index) override {
    tell('n', "validation_step");
    read('v', batch, index);
    log_from("validation_step", loss(batch));
  }
  void test_step(const levin::Batch& batch, int64_t index) override {
    tell('N', "test_step");
    read('s', batch, index);
    log_from("test_step", loss(batch));
  }

  levin::OptimizerConfig configure_optimizers() override {
    const json& setting = run->setting;
    const std::string kind = setting.value("optimizer", "sgd");
    if (kind == "two") {
      return {levin::optim::sgd({.lr = 0.1}).of(a), levin::optim::sgd({.lr = 0.05}).of(b)};
    }
    levin::OptimizerConfig config = kind == "adam"
                                        ? levin::optim::adam({.lr = 0.01})
                                        : levin::optim::sgd({.lr = 0.1, .momentum = 0.5});
    if (setting.contains("schedule")) config.schedule(schedule(setting["schedule"]));
    return config;
  }
  levin::Schedule schedule(const json& described) {
    const std::string kind = described["kind"];
    if (kind == "lambda") {
      return levin::optim::lambda(
          [](int64_t step) { return 1.0 / (1.0 + static_cast<double>(step)); });
    }
    if (kind == "linear") return levin::optim::linear({});
    const int64_t frequency = described.value("frequency", 1);
    if (kind == "plateau") {
      const levin::Schedule plateau =
          levin::optim::reduce_on_plateau({.monitor = "score",
                                           .mode = described["mode"],
                                           .factor = described["factor"],
                                           .patience = described["patience"],
                                           .threshold = described["threshold"],
                                           .threshold_mode = described["threshold_mode"],
                                           .cooldown = described["cooldown"],
                                           .min_lr = described["min_lr"]});
      return described["interval"] == "step" ? plateau.by_step(frequency)
                                             : plateau.by_epoch(frequency);
    }
    const auto step = levin::optim::step({.step_size = described["size"], .gamma = 0.5});
    return kind == "epoch" ? step.by_epoch(frequency) : step;
  }

  // The hooks, by the letters of lightning_grid.py.
  void configure_model() override { tell('m', "configure_model"); }
  void prepare_data() override { tell('p', "prepare_data"); }
  void setup(std::string_view) override { tell('s', "setup"); }
  void teardown(std::string_view) override { tell('q', "teardown"); }
  void on_fit_start() override { tell('f', "on_fit_start"); }
  void on_fit_end() override { tell('F', "on_fit_end"); }
  void on_train_start() override { tell('t', "on_train_start"); }
  void on_train_end() override { tell('T', "on_train_end"); }
  void on_train_epoch_start() override { tell('e', "on_train_epoch_start"); }
  void on_train_epoch_end() override { tell('E', "on_train_epoch_end"); }
  bool on_train_batch_start(const levin::Batch&, int64_t index) override {
    tell('b', "on_train_batch_start");
    return run->setting.value("leave", json()) != json({current_epoch(), index});
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    tell('B', "on_train_batch_end");
  }
  void on_validation_start() override { tell('v', "on_validation_start"); }
  void on_validation_end() override { tell('V', "on_validation_end"); }
  void on_validation_epoch_start() override { tell('w', "on_validation_epoch_start"); }
  void on_validation_epoch_end() override { tell('W', "on_validation_epoch_end"); }
  void on_validation_batch_start(const levin::Batch&, int64_t) override {
    tell('c', "on_validation_batch_start");
  }
  void on_validation_batch_end(const levin::Batch&, int64_t) override {
    tell('C', "on_validation_batch_end");
  }
  void on_test_start() override { tell('h', "on_test_start"); }
  void on_test_end() override { tell('H', "on_test_end"); }
  void on_test_epoch_start() override { tell('j', "on_test_epoch_start"); }
  void on_test_epoch_end() override { tell('J', "on_test_epoch_end"); }
  void on_test_batch_start(const levin::Batch&, int64_t) override {
    tell('k', "on_test_batch_start");
  }
  void on_test_batch_end(const levin::Batch&, int64_t) override { tell('K', "on_test_batch_end"); }
  void on_before_zero_grad(levin::OptimizerHandle&) override { tell('z', "on_before_zero_grad"); }
  void on_before_backward(const at::Tensor&) override { tell('d', "on_before_backward"); }
  void on_after_backward() override { tell('D', "on_after_backward"); }
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    tell('o', "on_before_optimizer_step");
  }
  levin::Batch on_before_batch_transfer(levin::Batch batch) override {
    tell('x', "on_before_batch_transfer");
    return batch;
  }
  levin::Batch on_after_batch_transfer(levin::Batch batch) override {
    tell('X', "on_after_batch_transfer");
    return batch;
  }
  void on_load_checkpoint(const levin::State&) override { tell('l', "on_load_checkpoint"); }
};

/// Told of each hook, and looks at callback_metrics where callbacks decide.
struct Listener : levin::Callback {
  explicit Listener(Scene& run) : run(run) {}
  std::string state_key() const override { return "listener"; }

  void tell(char letter, levin::Trainer& trainer) {
    run.record->callback.tell(letter, trainer.current_epoch(), trainer.global_step());
  }
  void look(char letter, levin::Trainer& trainer) {
    if (trainer.sanity_checking()) return;
    run.record->look(std::string(1, letter), metrics_of(trainer.callback_metrics()));
  }

  using Trainer = levin::Trainer;
  using Module = levin::Module;
  void setup(Trainer& t, Module&, std::string_view) override { tell('s', t); }
  void teardown(Trainer& t, Module&, std::string_view) override { tell('q', t); }
  void on_fit_start(Trainer& t, Module&) override { tell('f', t); }
  void on_fit_end(Trainer& t, Module&) override { tell('F', t); }
  void on_sanity_check_start(Trainer& t, Module&) override { tell('y', t); }
  void on_sanity_check_end(Trainer& t, Module&) override { tell('Y', t); }
  void on_train_start(Trainer& t, Module&) override { tell('t', t); }
  void on_train_end(Trainer& t, Module&) override { tell('T', t); }
  void on_train_epoch_start(Trainer& t, Module&) override { tell('e', t); }
  void on_train_epoch_end(Trainer& t, Module&) override {
    tell('E', t);
    look('E', t);
  }
  void on_train_batch_start(Trainer& t, Module&, const levin::Batch&, int64_t) override {
    tell('b', t);
  }
  void on_train_batch_end(Trainer& t, Module&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    tell('B', t);
    if (run.setting.value("look", false)) look('B', t);
  }
  void on_before_zero_grad(Trainer& t, Module&) override { tell('z', t); }
  void on_before_backward(Trainer& t, Module&, const at::Tensor&) override { tell('d', t); }
  void on_after_backward(Trainer& t, Module&) override { tell('D', t); }
  void on_before_optimizer_step(Trainer& t, Module&) override { tell('o', t); }
  void on_evaluation_start(Trainer& t, Module&, std::string_view stage) override {
    tell(stage == "test" ? 'h' : 'v', t);
  }
  void on_evaluation_end(Trainer& t, Module&, std::string_view stage) override {
    tell(stage == "test" ? 'H' : 'V', t);
    look(stage == "test" ? 'H' : 'V', t);
  }
  void on_evaluation_batch_start(Trainer& t, Module&, std::string_view stage, const levin::Batch&,
                                 int64_t) override {
    tell(stage == "test" ? 'k' : 'c', t);
  }
  void on_evaluation_batch_end(Trainer& t, Module&, std::string_view stage, const levin::Batch&,
                               int64_t) override {
    tell(stage == "test" ? 'K' : 'C', t);
  }
  void on_load_checkpoint(Trainer& t, Module&, const levin::State&) override { tell('l', t); }

  Scene& run;
};

}  // namespace

std::shared_ptr<levin::Module> make_model(Scene& scene) { return std::make_shared<Model>(scene); }
std::shared_ptr<levin::Callback> make_listener(Scene& scene) {
  return std::make_shared<Listener>(scene);
}
std::shared_ptr<levin::Logger> make_rows(Scene& scene) { return std::make_shared<Rows>(scene); }

}  // namespace lightning_grid
