#include "levin/module/optimizer_config.h"

#include <fnmatch.h>

#include <cmath>

#include "levin/base/check.h"

namespace levin {

OptimizerConfig::OptimizerConfig(std::initializer_list<OptimizerConfig> several) {
  for (const OptimizerConfig& config : several) {
    for (OptimizerConfig& one : config.list()) several_.push_back(std::move(one));
  }
}

std::vector<OptimizerConfig> OptimizerConfig::list() const {
  if (several_.empty()) return {*this};
  return several_;
}

OptimizerConfig& OptimizerConfig::group(std::string pattern, GroupOptions options) {
  groups_.push_back({std::move(pattern), options});
  return *this;
}

OptimizerConfig& OptimizerConfig::layerwise_lr_decay(const std::vector<std::string>& layers,
                                                     double decay) {
  LEVIN_CHECK(
      !layers.empty() && decay > 0.0 && decay <= 1.0, "module.optimizer.layerwise",
      "got {} layers and decay = {}, wanted at least one pattern and a decay above 0 and at "
      "most 1",
      layers.size(), decay);
  const auto depth = static_cast<double>(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    group(layers[i], {.lr = lr() * std::pow(decay, depth - static_cast<double>(i))});
  }
  return *this;
}

OptimizerConfig& OptimizerConfig::decay_only_weights(bool on) {
  decay_only_weights_ = on;
  return *this;
}

OptimizerConfig& OptimizerConfig::parameters_if(ParameterFilter filter) {
  filter_ = std::move(filter);
  return *this;
}

OptimizerConfig& OptimizerConfig::parameters(std::string pattern) {
  pattern_ = std::move(pattern);
  return *this;
}

OptimizerConfig& OptimizerConfig::of(const torch::nn::Module& module) {
  module_ = &module;
  return *this;
}

OptimizerConfig& OptimizerConfig::schedule(Schedule schedule) {
  schedule_ = std::move(schedule);
  return *this;
}

OptimizerConfig& OptimizerConfig::frequency(int64_t n) {
  LEVIN_CHECK(n >= 1, "module.optimizer.frequency", "got {}, wanted at least 1", n);
  frequency_ = n;
  return *this;
}

OptimizerConfig& OptimizerConfig::master_weights(bool on) {
  master_weights_ = on;
  return *this;
}

OptimizerConfig& OptimizerConfig::keep_state_in(std::shared_ptr<optim::StateMemory> memory) {
  state_memory_ = std::move(memory);
  return *this;
}

std::string OptimizerConfig::name() const {
  struct Name {
    std::string operator()(const SgdOptions&) const { return "sgd"; }
    std::string operator()(const AdamOptions&) const { return "adam"; }
    std::string operator()(const AdamWOptions&) const { return "adamw"; }
    std::string operator()(const NAdamOptions&) const { return "nadam"; }
    std::string operator()(const RAdamOptions&) const { return "radam"; }
    std::string operator()(const LionOptions&) const { return "lion"; }
    std::string operator()(const AdafactorOptions&) const { return "adafactor"; }
    std::string operator()(const MuonOptions&) const { return "muon"; }
    std::string operator()(const TorchOptimizerOptions& o) const { return o.class_name; }
  };
  return std::visit(Name(), kind_);
}

double OptimizerConfig::lr() const {
  const auto* adafactor = std::get_if<AdafactorOptions>(&kind_);
  if (adafactor != nullptr) return adafactor->lr.value_or(0.0);
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { double(options.lr); }) return double(options.lr);
        return 0.0;
      },
      kind_);
}

Schedule Schedule::by_epoch(int64_t n) const {
  LEVIN_CHECK(n >= 1, "optim.schedule.options", "got by_epoch({}), wanted at least 1", n);
  Schedule counted = *this;
  counted.interval = Interval::kEpoch;
  counted.frequency = n;
  return counted;
}

Schedule Schedule::by_step(int64_t n) const {
  LEVIN_CHECK(n >= 1, "optim.schedule.options", "got by_step({}), wanted at least 1", n);
  Schedule counted = *this;
  counted.interval = Interval::kStep;
  counted.frequency = n;
  return counted;
}

Schedule Schedule::by_hand() const {
  Schedule counted = *this;
  counted.interval = Interval::kHand;
  counted.frequency = 1;
  return counted;
}

Schedule Schedule::named(std::string log_name) const {
  Schedule named = *this;
  named.log_name = std::move(log_name);
  return named;
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace levin
