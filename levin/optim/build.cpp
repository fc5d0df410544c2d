#include <algorithm>

#include "levin/base/check.h"
#include "levin/optim/fused.h"
#include "levin/optim/master_weights.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/torch_adapter.h"

namespace levin::optim {
namespace {

void check_common(double lr, double weight_decay) {
  LEVIN_CHECK(lr >= 0.0, "optim.options", "got lr = {}, wanted at least 0", lr);
  LEVIN_CHECK(weight_decay >= 0.0, "optim.options", "got weight_decay = {}, wanted at least 0",
              weight_decay);
}

void check(const SgdOptions& options) {
  check_common(options.lr, options.weight_decay);
  LEVIN_CHECK(options.momentum >= 0.0, "optim.options", "got momentum = {}, wanted at least 0",
              options.momentum);
  LEVIN_CHECK(options.momentum > 0.0 || options.dampening == 0.0, "optim.options",
              "got dampening = {} without momentum, where it has no effect; set momentum, too",
              options.dampening);
  LEVIN_CHECK(!options.nesterov || (options.momentum > 0.0 && options.dampening == 0.0),
              "optim.options", "nesterov needs a momentum above 0 and dampening = 0, got {} and {}",
              options.momentum, options.dampening);
}

template <class Options>
void check_adam(const Options& options) {
  check_common(options.lr, options.weight_decay);
  for (const double beta : {options.betas.first, options.betas.second}) {
    LEVIN_CHECK(beta >= 0.0 && beta < 1.0, "optim.options", "got beta = {}, wanted 0 to below 1",
                beta);
  }
  LEVIN_CHECK(options.eps >= 0.0, "optim.options", "got eps = {}, wanted at least 0", options.eps);
}
void check(const AdamOptions& options) { check_adam(options); }
void check(const AdamWOptions& options) { check_adam(options); }
void check(const TorchOptimizerOptions&) {}

double weight_decay_of(const OptimizerConfig::Kind& kind) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.weight_decay; }) return options.weight_decay;
        return 0.0;
      },
      kind);
}

double momentum_of(const OptimizerConfig::Kind& kind) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.betas; }) return options.betas.first;
        if constexpr (requires { options.momentum; }) return options.momentum;
        return 0.0;
      },
      kind);
}

/// The groups asked for and a last one, "*", for the rest; empty ones of the latter sort are left
/// out.
std::vector<ParameterGroup> form_groups(const OptimizerConfig& config,
                                        const std::vector<NamedTensor>& parameters) {
  std::vector<ParameterGroup> groups;
  for (const auto& [pattern, options] : config.groups()) {
    check_common(options.lr.value_or(0.0), options.weight_decay.value_or(0.0));
    const double lr = options.lr.value_or(config.lr());
    groups.push_back(
        {pattern, lr, lr, options.weight_decay.value_or(weight_decay_of(config.kind())), {}});
  }
  groups.push_back({"*", config.lr(), config.lr(), weight_decay_of(config.kind()), {}});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) {
      return matches(g.pattern, parameters[i].name);
    });
    group->members.push_back(i);
  }
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    LEVIN_CHECK(
        !groups[i].members.empty(), "optim.group",
        "no parameter is left for the parameter group '{}'; the first parameter is named '{}'",
        groups[i].pattern, parameters.front().name);
  }
  if (groups.back().members.empty()) groups.pop_back();
  for (ParameterGroup& group : groups) group.momentum = momentum_of(config.kind());
  return groups;
}

}  // namespace

std::unique_ptr<Optimizer> build_optimizer(const OptimizerConfig& config,
                                           std::vector<NamedTensor> parameters) {
  const size_t offered = parameters.size();
  // Parameters that are frozen now stay in: they may be unfrozen later.
  std::erase_if(parameters, [&](const NamedTensor& parameter) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    return !(at::isFloatingType(type) || at::isComplexType(type)) ||
           !matches(config.pattern(), parameter.name);
  });
  LEVIN_CHECK(!parameters.empty(), "optim.parameters",
              "none of the {} parameters requires a gradient and matches '{}'; change the pattern, "
              "or set requires_grad",
              offered, config.pattern());
  const bool has_half = std::ranges::any_of(parameters, [](const NamedTensor& parameter) {
    return at::isReducedFloatingType(parameter.tensor.scalar_type());
  });
  if (config.has_master_weights() && has_half) return make_master_weights(config, parameters);
  std::visit([](const auto& options) { check(options); }, config.kind());
  std::vector<ParameterGroup> groups = form_groups(config, parameters);
  // LibTorch 2.13's fused SGD leaves half parameters on the CPU unchanged, except for a vector's
  // rest.
  const bool is_half_sgd = std::holds_alternative<SgdOptions>(config.kind()) && has_half;
  const bool fuse = !std::holds_alternative<TorchOptimizerOptions>(config.kind()) &&
                    std::ranges::all_of(parameters, [&](const NamedTensor& p) {
                      return can_fuse(p.tensor) && !(is_half_sgd && p.tensor.is_cpu());
                    });
  return fuse ? make_fused(config, std::move(parameters), std::move(groups))
              : make_torch_adapter(config, std::move(parameters), std::move(groups));
}

}  // namespace levin::optim
