#pragma once
// OptimizerConfig: a description of an optimizer, not the optimizer.
// A module returns it; the strategy builds it once it has placed the parameters.
//
//   return levin::optim::adamw({.lr = 3e-4, .weight_decay = 0.1})
//       .group("*.bias", {.weight_decay = 0.0})
//       .schedule(levin::optim::cosine({.warmup_steps = 100}));

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/base/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace levin {

/// torch.optim.SGD: fields in the order of its arguments.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
};

/// torch.optim.Adam (Kingma and Ba 2014; amsgrad: Reddi et al. 2018); weight_decay is an L2
/// penalty.
struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool maximize = false;
};

/// torch.optim.AdamW (Loshchilov and Hutter 2017); weight_decay shrinks the weights themselves.
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// Any class of torch::optim; made by optim::torch_optimizer.
struct TorchOptimizerOptions {
  std::string class_name;
  double lr = 0.0;
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::optim::OptimizerParamGroup>)>
      make;
};

/// What differs for the parameters of one group.
struct GroupOptions {
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

/// A learning rate over time: lr(step) = the group's lr * factor(step, total_steps), step counting
/// the steps of its own optimizer from 0. total_steps is how many of them the run will take, -1
/// when it has no limit: of an optimizer with frequency(n) the n-th part of the training steps.
struct Schedule {
  std::string name = "constant";
  std::function<double(int64_t step, int64_t total_steps)> factor;
};

/// A value; the builder functions return the config itself so that calls can be chained.
class LEVIN_API OptimizerConfig {
 public:
  using Kind = std::variant<SgdOptions, AdamOptions, AdamWOptions, TorchOptimizerOptions>;
  struct Group {
    std::string pattern;
    GroupOptions options;
  };

  OptimizerConfig(Kind kind) : kind_(std::move(kind)) {}  // NOLINT: a description converts
  /// Several optimizers, each bound by of() or parameters().
  OptimizerConfig(std::initializer_list<OptimizerConfig> several);

  /// Other options for parameters whose name matches the pattern ("*" stands for any text, "?" for
  /// one character); the first group that matches a parameter counts.
  OptimizerConfig& group(std::string pattern, GroupOptions options);
  /// Only the parameters whose name matches, of those the optimizer would get otherwise.
  OptimizerConfig& parameters(std::string pattern);
  /// Only the parameters of that module (the whole one or a part of it), which must outlive the
  /// building. Several modules or several optimizers need it.
  OptimizerConfig& of(const torch::nn::Module& module);
  template <class Holder>
    requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
  OptimizerConfig& of(const Holder& holder) {
    return of(static_cast<const torch::nn::Module&>(*holder));
  }
  OptimizerConfig& schedule(Schedule schedule);
  /// Steps only after every n-th training step; gradients add up in between, and the schedule
  /// moves with its steps alone. The trainer's, under automatic optimization: elsewhere the loop
  /// itself says when an optimizer steps, and more than 1 is an error.
  OptimizerConfig& frequency(int64_t n);
  /// Parameters in bfloat16 or float16 are updated in float32 copies of them, which the optimizer
  /// keeps: small updates are not lost to rounding. Has no effect on other parameters.
  OptimizerConfig& master_weights(bool on = true);

  /// The optimizers described here: this one, or the several it was made of.
  std::vector<OptimizerConfig> list() const;
  const Kind& kind() const { return kind_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::string& pattern() const { return pattern_; }
  const torch::nn::Module* module() const { return module_; }
  const std::optional<Schedule>& schedule() const { return schedule_; }
  int64_t frequency() const { return frequency_; }
  bool has_master_weights() const { return master_weights_; }
  /// "sgd", "adam", "adamw" or the name of the torch::optim class.
  std::string name() const;
  double lr() const;

 private:
  Kind kind_;
  std::vector<Group> groups_;
  std::string pattern_ = "*";
  const torch::nn::Module* module_ = nullptr;
  std::optional<Schedule> schedule_;
  int64_t frequency_ = 1;
  bool master_weights_ = false;
  std::vector<OptimizerConfig> several_;
};

/// Whether name matches a pattern of "*" (any text) and "?" (one character).
LEVIN_API bool matches(const std::string& pattern, const std::string& name);

}  // namespace levin
