#pragma once
// OptimizerConfig: the description of an optimizer, its parameter groups and its schedule. A module
// returns it from configure_optimizers, and the optimizer is built after the parameters are placed
// on their device and sharded.
//
//   return levin::optim::adamw({.lr = 3e-4, .weight_decay = 0.1})
//       .group("*.bias", {.weight_decay = 0.0})
//       .schedule(levin::optim::cosine({.warmup_steps = 100}));

#include <array>
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

namespace at {
class Tensor;
}  // namespace at
namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim
namespace levin::optim {
class StateMemory;
}  // namespace levin::optim

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

/// Options of NAdam, as torch.optim.NAdam (Dozat 2016).
struct NAdamOptions {
  double lr = 2e-3;  ///< learning rate
  /// Decay of the averages of gradient and squared gradient.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;                    ///< added to the denominator
  double weight_decay = 0.0;            ///< L2 penalty, or decoupled weight decay
  double momentum_decay = 4e-3;         ///< decay of the momentum
  bool decoupled_weight_decay = false;  ///< shrink the weights directly, as AdamW
  bool maximize = false;                ///< maximize the loss
};

/// Options of RAdam, as torch.optim.RAdam (Liu et al. 2019).
struct RAdamOptions {
  double lr = 1e-3;  ///< learning rate
  /// Decay of the averages of gradient and squared gradient.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;                    ///< added to the denominator
  double weight_decay = 0.0;            ///< L2 penalty, or decoupled weight decay
  bool decoupled_weight_decay = false;  ///< shrink the weights directly, as AdamW
  bool maximize = false;                ///< maximize the loss
};

/// Options of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"). Its step
/// has the size lr in each element, so a good lr is 3 to 10 times smaller than that of AdamW.
struct LionOptions {
  double lr = 1e-4;  ///< learning rate
  /// Weight of the momentum in the update, and decay of the momentum.
  std::pair<double, double> betas = {0.9, 0.99};
  double weight_decay = 0.0;  ///< decoupled weight decay, which shrinks the weights directly
};

/// Options of Adafactor, as transformers.Adafactor (Shazeer and Stern 2018). lr and relative_step
/// exclude each other, as there: for a learning rate of your own, set relative_step = false.
struct AdafactorOptions {
  std::optional<double> lr;  ///< learning rate; unset: it follows from the step (relative_step)
  /// Added to the squared gradient, and the smallest scale of a parameter.
  std::pair<double, double> eps = {1e-30, 1e-3};
  double clip_threshold = 1.0;  ///< largest root mean square of an update
  double decay_rate = -0.8;     ///< exponent of the decay of the squared gradient's average
  std::optional<double> beta1;  ///< decay of the update's average; unset: none
  double weight_decay = 0.0;    ///< decoupled weight decay
  bool scale_parameter = true;  ///< scale the learning rate by the parameter's root mean square
  bool relative_step = true;    ///< learning rate min(1e-2, 1 / sqrt(step))
  bool warmup_init = false;     ///< with relative_step: min(1e-6 * step, 1 / sqrt(step))
};

/// Options of Muon, as torch.optim.Muon (Jordan et al. 2024). It trains matrices only.
struct MuonOptions {
  double lr = 1e-3;           ///< learning rate
  double weight_decay = 0.1;  ///< decoupled weight decay
  double momentum = 0.95;     ///< momentum factor
  bool nesterov = true;       ///< use Nesterov momentum
  /// Coefficients of the Newton-Schulz iteration, which makes the update orthogonal.
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;     ///< smallest norm that an update is divided by
  int64_t ns_steps = 5;  ///< iterations, below 100
  /// Factor of the learning rate by the shape of the matrix: "original" (sqrt(max(1, rows /
  /// columns))) or "match_rms_adamw" (0.2 * sqrt(max(rows, columns))).
  std::string adjust_lr_fn = "original";
};

/// Options of an optimizer class of torch::optim; optim::torch_optimizer returns them.
struct TorchOptimizerOptions {
  std::string class_name;     ///< name of the torch::optim class
  double lr = 0.0;            ///< learning rate
  double weight_decay = 0.0;  ///< weight decay, for classes that have one
  /// Builds the optimizer over the given parameter groups.
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::optim::OptimizerParamGroup>)>
      make;
  /// Sets the weight decay of one parameter group; empty if the class has none.
  std::function<void(torch::optim::OptimizerParamGroup&, double)> set_weight_decay;
};

/// Options of a parameter group that differ from the optimizer's.
struct GroupOptions {
  std::optional<double> lr;            ///< learning rate; unset: the optimizer's
  std::optional<double> weight_decay;  ///< weight decay; unset: the optimizer's
};

/// Options of optim::reduce_on_plateau, with the names and defaults of
/// torch.optim.lr_scheduler.ReduceLROnPlateau, and Lightning's monitor and strict.
struct PlateauOptions {
  std::string monitor;                 ///< name of the logged value that is monitored
  std::string mode = "min";            ///< "min" or "max": which values are better
  double factor = 0.1;                 ///< factor of each reduction, at least 0 and below 1
  int64_t patience = 10;               ///< checks without improvement that are tolerated
  double threshold = 1e-4;             ///< smallest change that counts as an improvement
  std::string threshold_mode = "rel";  ///< threshold is relative ("rel") or absolute ("abs")
  int64_t cooldown = 0;                ///< checks after a reduction in which none is counted as bad
  double min_lr = 0.0;                 ///< smallest learning rate
  double eps = 1e-8;                   ///< smaller changes of the learning rate are not made
  bool strict = true;  ///< a monitored value that was not logged is an error; false: a warning
};

/// A learning rate schedule: lr(step) = the group's lr * factor(step, total_steps). step counts the
/// steps of this optimizer from 0. total_steps is the number of steps it will take in the run, -1
/// if the run has no limit. For an optimizer with frequency(n), it is the n-th part of the training
/// steps. With by_epoch(), both count epochs; with by_hand(), calls. A schedule with plateau has no factor.
struct Schedule {
  /// Unit in which a schedule counts.
  enum class Interval { kStep, kEpoch, kHand };

  std::string name = "constant";  ///< name of the schedule
  /// Factor of the learning rate at a step.
  std::function<double(int64_t step, int64_t total_steps)> factor;
  Interval interval = Interval::kStep;  ///< what is counted
  int64_t frequency = 1;  ///< intervals between two moves; the factor's step counts the moves
  std::optional<PlateauOptions> plateau;  ///< set: the rate follows a monitored value
  /// Name of the rate in the log of LearningRateMonitor; empty: "lr-" and the optimizer's class.
  std::string log_name = {};

  /// Returns the schedule counted in epochs: it moves after every n-th epoch, as Lightning's
  /// interval = "epoch" with frequency = n. Its options named steps then mean moves. Throws Error
  /// "optim.schedule.options" for n < 1.
  LEVIN_API Schedule by_epoch(int64_t n = 1) const;
  /// Returns the schedule counted in optimizer steps: it moves after every n-th one. Throws Error
  /// "optim.schedule.options" for n < 1.
  LEVIN_API Schedule by_step(int64_t n = 1) const;
  /// Returns the schedule counted by OptimizerHandle::step_schedule: it moves only when you call
  /// that, as the schedulers of manual optimization in Lightning. Its options named steps then mean
  /// calls, whose total the run does not know.
  LEVIN_API Schedule by_hand() const;
  /// Returns the schedule with a log_name, as `name` in the lr_scheduler of Lightning.
  LEVIN_API Schedule named(std::string log_name) const;
};

/// Description of one optimizer or of several. It is a value; builder functions return the config
/// itself, so calls can be chained.
class LEVIN_API OptimizerConfig {
 public:
  /// The optimizer class and its options.
  using Kind = std::variant<SgdOptions, AdamOptions, AdamWOptions, TorchOptimizerOptions,
                            NAdamOptions, RAdamOptions, LionOptions, AdafactorOptions, MuonOptions>;
  /// Chooses parameters by name and tensor.
  using ParameterFilter = std::function<bool(const std::string& name, const at::Tensor& parameter)>;
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
  /// Adds a parameter group for each layer, whose learning rate is lower the nearer the layer is to
  /// the input: lr * decay^(n - i) for the i-th of n patterns, counted from 0 at the input. Other
  /// parameters (the head) keep lr. It follows BEiT's layer-wise learning rate decay (Bao et al.
  /// 2021). Throws Error "module.optimizer.layerwise" unless 0 < decay <= 1 and there is a pattern.
  OptimizerConfig& layerwise_lr_decay(const std::vector<std::string>& layers, double decay);
  /// Applies weight decay only to parameters of at least two dimensions (weights of linear,
  /// convolution and embedding layers), not to biases and the weights of norms, which have one. It
  /// also holds inside the parameter groups.
  OptimizerConfig& decay_only_weights(bool on = true);
  /// Restricts the optimizer to parameters whose name matches the pattern.
  OptimizerConfig& parameters(std::string pattern);
  /// Restricts the optimizer to parameters for which the function returns true, beside the pattern:
  /// muon trains matrices, and another optimizer the rest.
  OptimizerConfig& parameters_if(ParameterFilter filter);
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
  /// Keeps the state of the optimizer in this memory, which `--offload optimizer` makes (a file on a disk).
  OptimizerConfig& keep_state_in(std::shared_ptr<optim::StateMemory> memory);

  /// Returns the optimizers described: this one, or several.
  std::vector<OptimizerConfig> list() const;
  const Kind& kind() const { return kind_; }  ///< The optimizer class and its options.
  const std::vector<Group>& groups() const { return groups_; }  ///< The parameter groups.
  const std::string& pattern() const { return pattern_; }  ///< The pattern given to parameters().
  /// The function given to parameters_if(), or an empty one.
  const ParameterFilter& filter() const { return filter_; }
  /// Returns whether decay_only_weights is on.
  bool decays_only_weights() const { return decay_only_weights_; }
  /// The module given to of(), or null.
  const torch::nn::Module* module() const { return module_; }
  const std::optional<Schedule>& schedule() const { return schedule_; }  ///< The schedule, if any.
  int64_t frequency() const { return frequency_; }  ///< Training steps per optimizer step.
  /// Returns whether master weights are on.
  bool has_master_weights() const { return master_weights_; }
  /// The memory given to keep_state_in(), or null.
  const std::shared_ptr<optim::StateMemory>& state_memory() const { return state_memory_; }
  /// Returns "sgd", "adam", "adamw", "nadam", "radam", "lion", "adafactor", "muon", or the name of
  /// the torch::optim class.
  std::string name() const;
  double lr() const;  ///< The learning rate; 0 for adafactor with relative_step.

 private:
  Kind kind_;
  std::vector<Group> groups_;
  std::string pattern_ = "*";
  ParameterFilter filter_;
  bool decay_only_weights_ = false;
  const torch::nn::Module* module_ = nullptr;
  std::optional<Schedule> schedule_;
  int64_t frequency_ = 1;
  bool master_weights_ = false;
  std::shared_ptr<optim::StateMemory> state_memory_;
  std::vector<OptimizerConfig> several_;
};

/// One optimizer, as a module with automatic_optimization = false uses it.
class LEVIN_API OptimizerHandle {
 public:
  virtual ~OptimizerHandle();

  /// Updates the parameters and steps the schedule. It does not clip gradients.
  virtual void step() = 0;
  /// Steps with a closure that drops the gradients, computes the loss, calls backward and returns
  /// the loss. Most optimizers call it once and then step; LBFGS calls it as often as it needs.
  /// Returns the loss of the first call.
  virtual at::Tensor step(const std::function<at::Tensor()>& closure) = 0;
  virtual void zero_grad() = 0;  ///< Drops the gradients of this optimizer's parameters.
  /// Sets requires_grad = false on the parameters of the other optimizers, until untoggle().
  virtual void toggle() = 0;
  virtual void untoggle() = 0;  ///< Ends what toggle() began.
  /// Clips the norm over the gradients of this optimizer's parameters.
  virtual void clip_grad_norm(double max_norm) = 0;
  /// Clips each element of the gradients of this optimizer's parameters.
  virtual void clip_grad_value(double clip_value) = 0;
  /// Steps the schedule, for one that moves only by this call (Schedule::by_hand). Throws Error
  /// "optim.schedule.value" for reduce_on_plateau.
  virtual void step_schedule() = 0;
  /// Gives reduce_on_plateau the value that it monitors. All ranks call it and use the value of
  /// rank 0. Throws Error "optim.schedule.value" for another schedule.
  virtual void step_schedule(double value) = 0;
  /// Returns the learning rate of the first parameter group.
  virtual double learning_rate() const = 0;
};

/// Returns whether a name matches a pattern of "*" (any text) and "?" (one character).
LEVIN_API bool matches(const std::string& pattern, const std::string& name);

}  // namespace levin
