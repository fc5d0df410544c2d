#include "levin/module/optimizer_config.h"

#include <fnmatch.h>

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

std::string OptimizerConfig::name() const {
  switch (kind_.index()) {
    case 0:
      return "sgd";
    case 1:
      return "adam";
    case 2:
      return "adamw";
    default:
      return std::get<TorchOptimizerOptions>(kind_).class_name;
  }
}

double OptimizerConfig::lr() const {
  return std::visit([](const auto& options) { return options.lr; }, kind_);
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace levin
