// Optimizers, schedules and clipping against torch.optim and transformers in Python.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/optim/learning_rate.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/optim/golden.h"

namespace {

using nlohmann::json;
const std::vector<std::string> kNames = {"weight", "bias", "cube"};

template <class Options>
Options adam_options(const json& o) {
  Options options;
  options.lr = o.value("lr", options.lr);
  if (o.contains("betas")) options.betas = {o["betas"][0], o["betas"][1]};
  options.eps = o.value("eps", options.eps);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.amsgrad = o.value("amsgrad", false);
  options.maximize = o.value("maximize", false);
  return options;
}

/// nadam and radam have the same names.
template <class Options>
Options averages_options(const json& o) {
  Options options;
  options.lr = o.value("lr", options.lr);
  if (o.contains("betas")) options.betas = {o["betas"][0], o["betas"][1]};
  options.eps = o.value("eps", options.eps);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.decoupled_weight_decay = o.value("decoupled_weight_decay", false);
  options.maximize = o.value("maximize", false);
  return options;
}

levin::AdafactorOptions adafactor_options(const json& o) {
  levin::AdafactorOptions options;
  if (o.contains("lr")) options.lr = o["lr"].get<double>();
  if (o.contains("eps")) options.eps = {o["eps"][0], o["eps"][1]};
  options.clip_threshold = o.value("clip_threshold", options.clip_threshold);
  options.decay_rate = o.value("decay_rate", options.decay_rate);
  if (o.contains("beta1")) options.beta1 = o["beta1"].get<double>();
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.scale_parameter = o.value("scale_parameter", true);
  options.relative_step = o.value("relative_step", true);
  options.warmup_init = o.value("warmup_init", false);
  return options;
}

levin::MuonOptions muon_options(const json& o) {
  levin::MuonOptions options;
  options.lr = o.value("lr", options.lr);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.momentum = o.value("momentum", options.momentum);
  options.nesterov = o.value("nesterov", true);
  if (o.contains("ns_coefficients")) options.ns_coefficients = o["ns_coefficients"];
  options.ns_steps = o.value("ns_steps", options.ns_steps);
  options.adjust_lr_fn = o.value("adjust_lr_fn", options.adjust_lr_fn);
  return options;
}

levin::OptimizerConfig config_of(const json& o) {
  const std::string kind = o["kind"];
  if (kind == "NAdam") {
    auto options = averages_options<levin::NAdamOptions>(o);
    options.momentum_decay = o.value("momentum_decay", options.momentum_decay);
    return levin::optim::nadam(options);
  }
  if (kind == "RAdam") return levin::optim::radam(averages_options<levin::RAdamOptions>(o));
  if (kind == "Adafactor") return levin::optim::adafactor(adafactor_options(o));
  if (kind == "Muon") return levin::optim::muon(muon_options(o));
  if (kind == "Lion") {
    levin::LionOptions options{.lr = o["lr"], .weight_decay = o.value("weight_decay", 0.0)};
    if (o.contains("betas")) options.betas = {o["betas"][0], o["betas"][1]};
    return levin::optim::lion(options);
  }
  if (kind == "RMSprop") {
    return levin::optim::rmsprop({.lr = o["lr"],
                                  .alpha = o.value("alpha", 0.99),
                                  .eps = o.value("eps", 1e-8),
                                  .weight_decay = o.value("weight_decay", 0.0),
                                  .momentum = o.value("momentum", 0.0),
                                  .centered = o.value("centered", false)});
  }
  if (kind == "Adagrad") {
    return levin::optim::adagrad(
        {.lr = o["lr"],
         .lr_decay = o.value("lr_decay", 0.0),
         .weight_decay = o.value("weight_decay", 0.0),
         .initial_accumulator_value = o.value("initial_accumulator_value", 0.0),
         .eps = o.value("eps", 1e-10)});
  }
  if (o["kind"] == "Adam") return levin::optim::adam(adam_options<levin::AdamOptions>(o));
  if (o["kind"] == "AdamW") return levin::optim::adamw(adam_options<levin::AdamWOptions>(o));
  return levin::optim::sgd({.lr = o.value("lr", 1e-3),
                            .momentum = o.value("momentum", 0.0),
                            .dampening = o.value("dampening", 0.0),
                            .weight_decay = o.value("weight_decay", 0.0),
                            .nesterov = o.value("nesterov", false),
                            .maximize = o.value("maximize", false)});
}

/// Muon trains the matrix only.
std::vector<levin::NamedTensor> parameters_of(const levin::State& tensors, at::ScalarType type,
                                              bool only_matrix) {
  std::vector<levin::NamedTensor> parameters;
  for (const std::string& name : kNames) {
    if (only_matrix && name != "weight") continue;
    parameters.push_back(
        {name, tensors.tensor("initial." + name).to(type).clone().requires_grad_()});
  }
  return parameters;
}

void expect_close(const at::Tensor& got, const at::Tensor& wanted, double tolerance,
                  const std::string& what) {
  EXPECT_LE((got - wanted).abs().max().item<double>(), tolerance) << what;
}

TEST(OptimizerOracle, HundredStepsEqualTorchOptim) {
  const json cases = golden::facts("optimizers");
  const levin::State tensors = golden::tensors("optimizers");
  ASSERT_GE(cases.size(), 30u);
  for (const auto& [name, options] : cases.items()) {
    // Python keeps NAdam's product of momenta in float32, and Muon computes in bfloat16.
    const bool is_coarse = name.starts_with("nadam") || name.starts_with("muon");
    for (const auto& [type_name, type, tolerance] :
         {std::tuple{"float32", at::kFloat, 2e-6},
          std::tuple{"float64", at::kDouble, is_coarse ? 1e-6 : 1e-13}}) {
      auto parameters = parameters_of(tensors, type, options["kind"] == "Muon");
      auto optimizer = levin::optim::build_optimizer(config_of(options), parameters);
      const std::string prefix = name + "." + type_name + ".";
      for (int64_t step = 1; step <= 100; ++step) {
        for (auto& [parameter, tensor] : parameters) {
          tensor.mutable_grad() = tensors.tensor("gradients." + parameter)[step - 1].to(type);
        }
        optimizer->step();
        if (step != 1 && step != 10 && step != 100) continue;
        for (const auto& [parameter, tensor] : parameters) {
          const std::string key = prefix + "step" + std::to_string(step) + "." + parameter;
          expect_close(tensor.detach(), tensors.tensor(key), tolerance, key);
        }
      }
      const levin::State state = optimizer->state_dict();
      for (const auto& [parameter, tensor] : parameters) {
        const levin::State& saved = state.child("parameters").child(parameter);
        const levin::State& mine = saved.contains("slots") ? saved.child("slots") : saved;
        for (const char* slot : {"momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                 "exp_avg_sq_row", "exp_avg_sq_col"}) {
          const std::string key = prefix + slot + "." + parameter;
          ASSERT_EQ(mine.contains(slot), tensors.contains(key)) << key;
          if (mine.contains(slot)) {
            expect_close(mine.tensor(slot), tensors.tensor(key), tolerance, key);
          }
        }
      }
    }
  }
}

levin::Schedule schedule_of(const std::string& name, const json& o) {
  const int64_t warmup = o.value("num_warmup_steps", 0);
  const int64_t total = o.value("num_training_steps", -1);
  if (name.starts_with("constant")) return levin::optim::constant({.warmup_steps = warmup});
  if (name.starts_with("linear")) {
    return levin::optim::linear({.warmup_steps = warmup, .total_steps = total});
  }
  if (name.starts_with("cosine")) {
    return levin::optim::cosine({.warmup_steps = warmup, .total_steps = total});
  }
  if (name == "step") {
    return levin::optim::step({.step_size = o.at("step_size"), .gamma = o.at("gamma")});
  }
  if (name.starts_with("multi_step")) {
    return levin::optim::multi_step({.milestones = o.at("milestones"), .gamma = o.at("gamma")});
  }
  if (name == "exponential") return levin::optim::exponential({.gamma = o.at("gamma")});
  if (name == "polynomial_torch") {
    return levin::optim::polynomial({.total_steps = o.at("total_iters"), .power = o.at("power")});
  }
  if (name.starts_with("polynomial")) {
    return levin::optim::polynomial(
        {.warmup_steps = warmup,
         .total_steps = total,
         .end_factor = o.value("lr_end", 1e-7) / o.at("lr").get<double>(),
         .power = o.value("power", 1.0)});
  }
  if (name.starts_with("one_cycle")) {
    return levin::optim::one_cycle({.total_steps = o.at("total_steps"),
                                    .pct_start = o.value("pct_start", 0.3),
                                    .anneal_strategy = o.value("anneal_strategy", "cos"),
                                    .div_factor = o.value("div_factor", 25.0),
                                    .final_div_factor = o.value("final_div_factor", 1e4),
                                    .three_phase = o.value("three_phase", false)});
  }
  if (name == "restarts") {
    return levin::optim::cosine_with_restarts(
        {.warmup_steps = warmup, .total_steps = total, .num_cycles = o.at("num_cycles")});
  }
  if (name.starts_with("warm_restarts")) {
    return levin::optim::cosine_warm_restarts(
        {.t_0 = o.at("T_0"),
         .t_mult = o.value("T_mult", 1),
         .min_factor = o.value("eta_min", 0.0) / o.at("lr").get<double>()});
  }
  if (name.starts_with("wsd")) {
    return levin::optim::warmup_stable_decay({.warmup_steps = warmup,
                                              .decay_steps = o.at("num_decay_steps"),
                                              .total_steps = total,
                                              .stable_steps = o.value("num_stable_steps", -1),
                                              .warmup_type = o.value("warmup_type", "linear"),
                                              .decay_type = o.value("decay_type", "cosine"),
                                              .min_factor = o.value("min_lr_ratio", 0.0),
                                              .num_cycles = o.value("num_cycles", 0.5)});
  }
  if (name.starts_with("inverse_sqrt")) {
    return levin::optim::inverse_sqrt(
        {.warmup_steps = warmup, .timescale = o.value("timescale", -1)});
  }
  if (name == "sequential") {
    return levin::optim::sequential(
        {levin::optim::exponential({.gamma = 0.9}),
         levin::optim::step({.step_size = 4, .gamma = 0.5}), levin::optim::linear()},
        {8, 20});
  }
  EXPECT_EQ(name, "chained");
  return levin::optim::chained({levin::optim::multi_step({.milestones = {5, 9}, .gamma = 0.5}),
                                levin::optim::exponential({.gamma = 0.95})});
}

TEST(ScheduleOracle, EveryRateEqualsPython) {
  const json cases = golden::facts("schedules");
  ASSERT_GE(cases.size(), 30u);
  for (const auto& [name, o] : cases.items()) {
    if (name.starts_with("plateau")) continue;
    const levin::Schedule schedule = schedule_of(name, o);
    const int64_t run_total = name == "sequential" ? 31 : -1;
    for (size_t step = 0; step < o.at("values").size(); ++step) {
      const double rate =
          o.at("lr").get<double>() * schedule.factor(static_cast<int64_t>(step), run_total);
      EXPECT_NEAR(rate, o.at("values")[step].get<double>(), 1e-12) << name << " step " << step;
    }
  }
}

TEST(ScheduleOracle, PlateauLowersRatesAsPython) {
  int64_t num_cases = 0;
  const json cases = golden::facts("schedules");
  for (const auto& [name, o] : cases.items()) {
    if (!name.starts_with("plateau")) continue;
    ++num_cases;
    auto optimizer = levin::optim::build_optimizer(
        levin::optim::sgd({.lr = 0.1}).group("b", {.lr = 0.01}),
        {{"a", torch::zeros({1}).requires_grad_()}, {"b", torch::zeros({1}).requires_grad_()}});
    levin::optim::LearningRate rate(
        *optimizer,
        levin::optim::reduce_on_plateau({.monitor = "loss",
                                         .mode = o.value("mode", "min"),
                                         .factor = o.value("factor", 0.1),
                                         .patience = o.value("patience", 10),
                                         .threshold = o.value("threshold", 1e-4),
                                         .threshold_mode = o.value("threshold_mode", "rel"),
                                         .cooldown = o.value("cooldown", 0),
                                         .min_lr = o.value("min_lr", 0.0),
                                         .eps = o.value("eps", 1e-8)}),
        -1);
    levin::optim::Plateau plateau = rate.fresh_plateau();
    for (size_t i = 0; i < o.at("given").size(); ++i) {
      const json& value = o["given"][i];
      rate.check(plateau, value.is_null() ? std::nan("") : value.get<double>());
      for (size_t group = 0; group < 2; ++group) {  // "b" is levin's first group
        EXPECT_EQ(optimizer->groups()[1 - group].lr, o["rates"][i][group].get<double>())
            << name << " after value " << i;
      }
    }
    EXPECT_EQ(plateau.best, o["counts"]["best"].get<double>()) << name;
    EXPECT_EQ(plateau.num_bad_epochs, o["counts"]["num_bad_epochs"].get<int64_t>()) << name;
    EXPECT_EQ(plateau.cooldown_counter, o["counts"]["cooldown_counter"].get<int64_t>()) << name;
  }
  EXPECT_EQ(num_cases, 6);
}

TEST(ClipOracle, NormsAndClippedGradientsEqualPython) {
  const json cases = golden::facts("clipping");
  const levin::State tensors = golden::tensors("clipping");
  for (const auto& [name, o] : cases.items()) {
    std::vector<levin::NamedTensor> parameters;
    for (const std::string& parameter : kNames) {
      const at::Tensor gradient = tensors.tensor("gradients." + parameter);
      at::Tensor tensor = at::zeros_like(gradient).requires_grad_();
      tensor.mutable_grad() = gradient.clone();
      parameters.push_back({parameter, tensor});
    }
    if (name == "value") {
      levin::optim::clip_grad_value(parameters, o.at("clip_value"));
    } else {
      const double type = o.at("norm_type").is_string() ? std::numeric_limits<double>::infinity()
                                                        : o.at("norm_type").get<double>();
      const at::Tensor norm = levin::optim::clip_grad_norm(parameters, o.at("max_norm"), type);
      EXPECT_NEAR(norm.item<double>(), o.at("total_norm").get<double>(), 1e-5) << name;
    }
    for (const auto& [parameter, tensor] : parameters) {
      expect_close(tensor.grad(), tensors.tensor(name + "." + parameter), 1e-6, name);
    }
  }
}

}  // namespace
