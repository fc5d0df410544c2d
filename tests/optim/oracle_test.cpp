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

levin::OptimizerConfig config_of(const json& o) {
  if (o["kind"] == "Adam") return levin::optim::adam(adam_options<levin::AdamOptions>(o));
  if (o["kind"] == "AdamW") return levin::optim::adamw(adam_options<levin::AdamWOptions>(o));
  return levin::optim::sgd({.lr = o.value("lr", 1e-3),
                            .momentum = o.value("momentum", 0.0),
                            .dampening = o.value("dampening", 0.0),
                            .weight_decay = o.value("weight_decay", 0.0),
                            .nesterov = o.value("nesterov", false),
                            .maximize = o.value("maximize", false)});
}

std::vector<levin::NamedTensor> parameters_of(const levin::State& tensors, at::ScalarType type) {
  std::vector<levin::NamedTensor> parameters;
  for (const std::string& name : kNames) {
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
  ASSERT_GE(cases.size(), 10u);
  for (const auto& [name, options] : cases.items()) {
    for (const auto& [type_name, type, tolerance] :
         {std::tuple{"float32", at::kFloat, 2e-6}, std::tuple{"float64", at::kDouble, 1e-13}}) {
      auto parameters = parameters_of(tensors, type);
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
      for (const std::string& parameter : kNames) {
        for (const char* slot : {"momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}) {
          const levin::State& mine = state.child("parameters").child(parameter);
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
  return levin::optim::step({.step_size = o.at("step_size"), .gamma = o.at("gamma")});
}

TEST(ScheduleOracle, EveryRateEqualsPython) {
  const json cases = golden::facts("schedules");
  ASSERT_GE(cases.size(), 4u);
  for (const auto& [name, o] : cases.items()) {
    const levin::Schedule schedule = schedule_of(name, o);
    for (size_t step = 0; step < o.at("values").size(); ++step) {
      const double rate =
          o.at("lr").get<double>() * schedule.factor(static_cast<int64_t>(step), -1);
      EXPECT_NEAR(rate, o.at("values")[step].get<double>(), 1e-12) << name << " step " << step;
    }
  }
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
