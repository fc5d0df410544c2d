#pragma once
// Optimizers of plain ATen operators, one parameter at a time: NAdam, RAdam, Lion, Adafactor, Muon.
// Not for users.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// State of one parameter.
struct PlainState {
  int64_t steps = 0;
  std::vector<std::pair<std::string_view, at::Tensor>> slots;
  double mu_product = 1.0;  ///< of NAdam
};

/// How one parameter is updated.
class PlainRule {
 public:
  virtual ~PlainRule() = default;
  /// Returns the slots of a parameter before its first step.
  virtual std::vector<std::pair<std::string_view, at::Tensor>> slots_of(
      const at::Tensor& parameter) const = 0;
  /// Updates the parameter. state.steps counts this step, the first being 1.
  virtual void update(const at::Tensor& parameter, const at::Tensor& gradient, PlainState& state,
                      ParameterGroup& group) const = 0;
  /// Returns whether the rule keeps mu_product.
  virtual bool keeps_product() const { return false; }
  /// Returns whether an element's update depends on other elements of its parameter.
  virtual bool needs_whole() const { return false; }
  /// Throws an Error for a parameter that the rule does not train.
  virtual void check(const NamedTensor&) const {}
};

/// Returns the rule of a kind, or null for kinds that are fused or of torch::optim.
std::unique_ptr<PlainRule> make_plain_rule(const OptimizerConfig::Kind& kind);

/// Throws Error "optim.parameters" for a complex parameter, "optim.sharded" for a sharded one if the rule needs
/// whole ones, and what PlainRule::check throws.
void check_plain(const OptimizerConfig& config, const PlainRule& rule,
                 const std::vector<NamedTensor>& parameters);

/// Throws what check_plain throws.
std::unique_ptr<Optimizer> make_plain(const OptimizerConfig& config,
                                      std::unique_ptr<PlainRule> rule,
                                      std::vector<NamedTensor> parameters,
                                      std::vector<ParameterGroup> groups);

}  // namespace levin::optim
