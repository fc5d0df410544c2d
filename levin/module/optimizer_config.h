#pragma once
// OptimizerConfig: the description of an optimizer, its parameter groups and its schedule. A module
// returns it from configure_optimizers, and the optimizer is built after the parameters are placed
// on their device and sharded.
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

/// Options of SGD, with the names, order and defaults of torch.optim.SGD's arguments.
struct SgdOptions {
  double lr = 1e-3;           ///< learning rate
  double momentum = 0.0;      ///< momentum factor; 0: none
  double dampening = 0.0;     ///< dampening of the momentum
  double weight_decay = 0.0;  ///< L2 penalty
  bool nesterov = false;      ///< use Nesterov momentum
  bool maximize = false;      ///< maximize the loss
};

/// Options of Adam, as torch.optim.Adam (Kingma and Ba 2014; amsgrad: Reddi et al. 2018).
struct AdamOptions {
  double lr = 1e-3;  ///< learning rate
  /// Decay of the averages of gradient and squared gradient.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;          ///< added to the denominator
  double weight_decay = 0.0;  ///< L2 penalty, added to the gradient
  bool amsgrad = false;       ///< use the AMSGrad variant
  bool maximize = false;      ///< maximize the loss
};

/// Options of AdamW, as torch.optim.AdamW (Loshchilov and Hutter 2017).
struct AdamWOptions {
  double lr = 1e-3;  ///< learning rate
  /// Decay of the averages of gradient and squared gradient.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;           ///< added to the denominator
  double weight_decay = 1e-2;  ///< decoupled weight decay, which shrinks the weights directly
  bool amsgrad = false;        ///< use the AMSGrad variant
  bool maximize = false;       ///< maximize the loss
};

/// Options of an optimizer class of torch::optim; optim::torch_optimizer returns them.
struct TorchOptimizerOptions {
  std::string class_name;  ///< name of the torch::optim class
  double lr = 0.0;         ///< learning rate
  /// Builds the optimizer over the given parameter groups.
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::optim::OptimizerParamGroup>)>
      make;
};

/// Options of a parameter group that differ from the optimizer's.
struct GroupOptions {
  std::optional<double> lr;            ///< learning rate; unset: the optimizer's
  std::optional<double> weight_decay;  ///< weight decay; unset: the optimizer's
};

/// A learning rate schedule: lr(step) = the group's lr * factor(step, total_steps). step counts the
/// steps of this optimizer from 0. total_steps is the number of steps it will take in the run, -1
/// if the run has no limit. For an optimizer with frequency(n), it is the n-th part of the training
/// steps.
struct Schedule {
  std::string name = "constant";  ///< name of the schedule
  /// Factor of the learning rate at a step.
  std::function<double(int64_t step, int64_t total_steps)> factor;
};

/// Description of one optimizer or of several. It is a value; builder functions return the config
/// itself, so calls can be chained.
class LEVIN_API OptimizerConfig {
 public:
  /// The optimizer class and its options.
  using Kind = std::variant<SgdOptions, AdamOptions, AdamWOptions, TorchOptimizerOptions>;
  /// A parameter group.
  struct Group {
    std::string pattern;   ///< pattern of parameter names, see matches()
    GroupOptions options;  ///< options of the group
  };

  /// Describes one optimizer.
  OptimizerConfig(Kind kind) : kind_(std::move(kind)) {}  // NOLINT: a description converts
  /// Describes several optimizers, each bound to its parameters by of() or parameters().
  OptimizerConfig(std::initializer_list<OptimizerConfig> several);

  /// Adds a parameter group: other options for parameters whose name matches the pattern ("*"
  /// stands for any text, "?" for one character). A parameter belongs to the first group that it
  /// matches.
  OptimizerConfig& group(std::string pattern, GroupOptions options);
  /// Restricts the optimizer to parameters whose name matches the pattern.
  OptimizerConfig& parameters(std::string pattern);
  /// Restricts the optimizer to the parameters of a module (the whole model or a part of it), which
  /// must outlive the building of the optimizer. It is needed for several modules or several
  /// optimizers.
  OptimizerConfig& of(const torch::nn::Module& module);
  /// Same for a module holder or pointer.
  template <class Holder>
    requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
  OptimizerConfig& of(const Holder& holder) {
    return of(static_cast<const torch::nn::Module&>(*holder));
  }
  OptimizerConfig& schedule(Schedule schedule);  ///< Sets the learning rate schedule.
  /// Makes the optimizer step only after every n-th training step: gradients accumulate in between,
  /// and the schedule counts this optimizer's steps. Only the Trainer with automatic optimization
  /// supports n > 1; elsewhere it is an error, since the loop itself decides when an optimizer
  /// steps. Throws Error "module.optimizer.frequency" for n < 1.
  OptimizerConfig& frequency(int64_t n);
  /// Keeps float32 copies (master weights) of bfloat16 and float16 parameters in the optimizer and
  /// updates those, so that small updates are not lost to rounding. It has no effect on other
  /// parameters.
  OptimizerConfig& master_weights(bool on = true);

  /// Returns the optimizers described: this one, or several.
  std::vector<OptimizerConfig> list() const;
  const Kind& kind() const { return kind_; }  ///< The optimizer class and its options.
  const std::vector<Group>& groups() const { return groups_; }  ///< The parameter groups.
  const std::string& pattern() const { return pattern_; }  ///< The pattern given to parameters().
  /// The module given to of(), or null.
  const torch::nn::Module* module() const { return module_; }
  const std::optional<Schedule>& schedule() const { return schedule_; }  ///< The schedule, if any.
  int64_t frequency() const { return frequency_; }  ///< Training steps per optimizer step.
  /// Returns whether master weights are on.
  bool has_master_weights() const { return master_weights_; }
  /// Returns "sgd", "adam", "adamw" or the name of the torch::optim class.
  std::string name() const;
  double lr() const;  ///< The learning rate.

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

/// Returns whether a name matches a pattern of "*" (any text) and "?" (one character).
LEVIN_API bool matches(const std::string& pattern, const std::string& name);

}  // namespace levin
