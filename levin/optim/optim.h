#pragma once
// Descriptions of optimizers and learning rate schedules, which a module's configure_optimizers
// returns, and gradient clipping. build_optimizer makes the optimizers once the strategy has placed
// the parameters.
//
//   return levin::optim::sgd({.lr = 0.1, .momentum = 0.9})
//       .schedule(levin::optim::cosine({.warmup_steps = 500}));

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"

namespace levin::optim {

/// Describes SGD (torch.optim.SGD). It runs as a fused ATen call (at::_fused_sgd_) over flat state.
inline OptimizerConfig sgd(SgdOptions options = {}) { return OptimizerConfig(options); }
/// Describes Adam (torch.optim.Adam). It runs as a fused ATen call over flat state.
inline OptimizerConfig adam(AdamOptions options = {}) { return OptimizerConfig(options); }
/// Describes AdamW (torch.optim.AdamW). It runs as a fused ATen call over flat state.
inline OptimizerConfig adamw(AdamWOptions options = {}) { return OptimizerConfig(options); }

/// Describes NAdam (torch.optim.NAdam).
inline OptimizerConfig nadam(NAdamOptions options = {}) { return OptimizerConfig(options); }
/// Describes RAdam (torch.optim.RAdam).
inline OptimizerConfig radam(RAdamOptions options = {}) { return OptimizerConfig(options); }
/// Describes Lion (Chen et al. 2023).
inline OptimizerConfig lion(LionOptions options = {}) { return OptimizerConfig(options); }
/// Describes Adafactor (transformers.Adafactor). Its averages are of whole rows and columns: with
/// parameters that are sharded over ranks, building it throws Error "optim.sharded".
inline OptimizerConfig adafactor(AdafactorOptions options = {}) { return OptimizerConfig(options); }
/// Describes Muon (torch.optim.Muon) for parameters of two dimensions; building it throws Error
/// "optim.muon" for others, and "optim.sharded" for parameters that are sharded over ranks.
///
///   const auto is_hidden = [](const std::string& name, const at::Tensor& parameter) {
///     return parameter.dim() == 2 && name.starts_with("blocks.");
///   };
///   return {levin::optim::muon({.lr = 0.02}).of(net).parameters_if(is_hidden),
///           levin::optim::adamw({.lr = 3e-4}).of(net).parameters_if(std::not_fn(is_hidden))};
inline OptimizerConfig muon(MuonOptions options = {}) {
  return OptimizerConfig(std::move(options));
}

/// Options of RMSprop, with the names, order and defaults of torch.optim.RMSprop's arguments.
struct RMSpropOptions {
  double lr = 1e-2;           ///< learning rate
  double alpha = 0.99;        ///< decay of the squared gradient's average
  double eps = 1e-8;          ///< added to the denominator
  double weight_decay = 0.0;  ///< L2 penalty
  double momentum = 0.0;      ///< momentum factor; 0: none
  bool centered = false;      ///< divide by the estimated standard deviation
};
/// Describes RMSprop (torch::optim::RMSprop).
LEVIN_API OptimizerConfig rmsprop(RMSpropOptions options = {});

/// Options of Adagrad, with the names, order and defaults of torch.optim.Adagrad's arguments.
struct AdagradOptions {
  double lr = 1e-2;                        ///< learning rate
  double lr_decay = 0.0;                   ///< decay of the learning rate by the step
  double weight_decay = 0.0;               ///< L2 penalty
  double initial_accumulator_value = 0.0;  ///< sum of squared gradients at the start
  double eps = 1e-10;                      ///< added to the denominator
};
/// Describes Adagrad (torch::optim::Adagrad).
LEVIN_API OptimizerConfig adagrad(AdagradOptions options = {});

/// Describes an optimizer of any class of torch::optim, with the options of that class:
/// torch_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-2)).
template <class TorchOptimizer, class Options>
OptimizerConfig torch_optimizer(Options options) {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  TorchOptimizerOptions description;
  description.class_name = c10::demangle(typeid(TorchOptimizer).name());
  description.lr = options.get_lr();
  // NOLINTNEXTLINE(performance-unnecessary-value-param): torch's classes take them over
  description.make = [options](Groups groups) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<TorchOptimizer>(std::move(groups), options);
  };
  if constexpr (requires { options.weight_decay(0.0); }) {
    description.weight_decay = options.weight_decay();
    description.set_weight_decay = [](torch::optim::OptimizerParamGroup& group, double value) {
      static_cast<Options&>(group.options()).weight_decay(value);
    };
  }
  return OptimizerConfig(std::move(description));
}

// Learning rate schedules. A schedule is a factor of the learning rate as a function of the
// optimizer step, or of the epoch with Schedule::by_epoch(). A schedule with warmup_steps rises
// linearly from 0 over these steps, as in transformers. total_steps = -1 means the number of steps
// that the trainer will run. Each function throws Error "optim.schedule.options" for values outside
// their range. A schedule that needs the total throws Error "optim.schedule.total_steps" in the run
// if the run has no limit.
//
//   Schedule schedule = levin::optim::linear({.warmup_steps = 100, .total_steps = 10'000});

/// Options of constant.
struct ConstantOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
};
/// Keeps the learning rate after the warm-up: transformers.get_constant_schedule_with_warmup.
LEVIN_API Schedule constant(ConstantOptions options = {});

/// Options of linear.
struct LinearOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until end_factor; -1: those of the run
  double end_factor = 0.0;   ///< factor at total_steps, at least 0
};
/// The rate falls linearly from the full rate at the end of the warm-up to end_factor at
/// total_steps: transformers.get_linear_schedule_with_warmup.
LEVIN_API Schedule linear(LinearOptions options = {});

/// Options of cosine.
struct CosineOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until the end; -1: those of the run
  double num_cycles = 0.5;   ///< periods of the cosine; 0.5 falls once from 1 to min_factor
  double min_factor = 0.0;   ///< smallest factor after the warm-up, at least 0
};
/// The rate falls along half a cosine to min_factor at total_steps (Loshchilov and Hutter 2016):
/// transformers.get_cosine_schedule_with_warmup.
LEVIN_API Schedule cosine(CosineOptions options = {});

/// Options of step.
struct StepOptions {
  int64_t step_size = 1000;  ///< optimizer steps between two decays, at least 1
  double gamma = 0.1;        ///< factor of each decay, at least 0
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
};
/// Multiplies the rate by gamma after every step_size optimizer steps, counted from the start of
/// the run: torch.optim.lr_scheduler.StepLR.
LEVIN_API Schedule step(StepOptions options = {});

/// Options of multi_step.
struct MultiStepOptions {
  std::vector<int64_t> milestones = {};  ///< optimizer steps of the decays, in ascending order
  double gamma = 0.1;                    ///< factor of each decay, at least 0
  int64_t warmup_steps = 0;              ///< optimizer steps of linear warm-up
};
/// Multiplies the rate by gamma at each milestone: torch.optim.lr_scheduler.MultiStepLR.
LEVIN_API Schedule multi_step(MultiStepOptions options);

/// Options of exponential.
struct ExponentialOptions {
  double gamma = 0.99;       ///< factor of each decay, at least 0
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
};
/// Multiplies the rate by gamma after every optimizer step, counted from the start of the run:
/// torch.optim.lr_scheduler.ExponentialLR.
LEVIN_API Schedule exponential(ExponentialOptions options = {});

/// Options of polynomial.
struct PolynomialOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until end_factor; -1: those of the run
  double end_factor = 0.0;   ///< factor at total_steps, 0 to 1 (transformers' lr_end / lr)
  double power = 1.0;        ///< exponent of the decay, at least 0
};
/// Falls as a power of the remaining part to end_factor at total_steps:
/// transformers.get_polynomial_decay_schedule_with_warmup, torch.optim.lr_scheduler.PolynomialLR.
LEVIN_API Schedule polynomial(PolynomialOptions options = {});

/// Options of one_cycle, with the names of torch.optim.lr_scheduler.OneCycleLR's arguments.
struct OneCycleOptions {
  int64_t total_steps = -1;             ///< optimizer steps of the cycle; -1: those of the run
  double pct_start = 0.3;               ///< part of the cycle in which the rate rises, 0 to 1
  std::string anneal_strategy = "cos";  ///< shape of rise and fall: "cos" or "linear"
  double div_factor = 25.0;             ///< the rate begins at lr / div_factor
  double final_div_factor = 1e4;        ///< and ends at lr / div_factor / final_div_factor
  bool three_phase = false;             ///< fall to the first rate before falling to the last
};
/// Rises to the optimizer's lr (OneCycleLR's max_lr) and falls again (Smith and Topin 2018):
/// torch.optim.lr_scheduler.OneCycleLR with cycle_momentum = False. Momentum stays as it is.
LEVIN_API Schedule one_cycle(OneCycleOptions options = {});

/// Options of cosine_with_restarts.
struct CosineWithRestartsOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until the end; -1: those of the run
  int64_t num_cycles = 1;    ///< number of falls from 1 to 0 until total_steps, at least 1
};
/// Falls num_cycles times along half a cosine:
/// transformers.get_cosine_with_hard_restarts_schedule_with_warmup.
LEVIN_API Schedule cosine_with_restarts(CosineWithRestartsOptions options = {});

/// Options of cosine_warm_restarts.
struct CosineWarmRestartsOptions {
  int64_t t_0 = 1000;       ///< optimizer steps until the first restart, at least 1
  int64_t t_mult = 1;       ///< growth of these steps with each restart, at least 1
  double min_factor = 0.0;  ///< smallest factor, at least 0 (PyTorch's eta_min / lr)
};
/// Falls along half a cosine and restarts (Loshchilov and Hutter 2016):
/// torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.
LEVIN_API Schedule cosine_warm_restarts(CosineWarmRestartsOptions options = {});

/// Options of warmup_stable_decay, with the names of transformers.get_wsd_schedule's arguments.
struct WarmupStableDecayOptions {
  int64_t warmup_steps = 0;            ///< optimizer steps of warm-up
  int64_t decay_steps = 0;             ///< optimizer steps of the fall
  int64_t total_steps = -1;            ///< optimizer steps until the end of the fall; -1: the run's
  int64_t stable_steps = -1;           ///< optimizer steps between; -1: what is left of total_steps
  std::string warmup_type = "linear";  ///< "linear", "cosine" or "1-sqrt"
  std::string decay_type = "cosine";   ///< "linear", "cosine" or "1-sqrt"
  double min_factor = 0.0;             ///< factor at both ends, at least 0
  double num_cycles = 0.5;             ///< periods of a cosine fall; 0.5 falls once
};
/// Rises, stays, and falls (WSD, Hu et al. 2024): transformers.get_wsd_schedule.
LEVIN_API Schedule warmup_stable_decay(WarmupStableDecayOptions options = {});

/// Options of inverse_sqrt.
struct InverseSqrtOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t timescale = -1;    ///< step at which the factor is 1; -1: warmup_steps, or 10000 without
};
/// Falls as 1 / sqrt(step) after the warm-up: transformers.get_inverse_sqrt_schedule.
LEVIN_API Schedule inverse_sqrt(InverseSqrtOptions options = {});

/// Multiplies the rate by any function of the optimizer step: torch.optim.lr_scheduler.LambdaLR.
LEVIN_API Schedule lambda(std::function<double(int64_t step)> factor);

/// Runs schedules one after another: the i-th ends at milestones[i], where the next begins at its
/// own step 0: torch.optim.lr_scheduler.SequentialLR. A schedule with total_steps = -1 gets the
/// steps up to its milestone. Throws Error "optim.schedule.options" unless there is one schedule
/// more than milestones, these ascend, and none of the schedules counts epochs or monitors a value.
LEVIN_API Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones);

/// Multiplies the factors of schedules: torch.optim.lr_scheduler.ChainedScheduler. Throws Error
/// "optim.schedule.options" if there is no schedule, or one counts epochs or monitors a value.
LEVIN_API Schedule chained(std::vector<Schedule> schedules);

/// Multiplies the rate by a factor when a monitored value has stopped improving:
/// torch.optim.lr_scheduler.ReduceLROnPlateau. The Trainer checks the value after each epoch, or as
/// by_epoch() and by_step() say; all ranks use the value of rank 0. In a loop of your own, call
/// PreparedOptimizer::step_schedule(value). Throws Error "optim.schedule.options" for values
/// outside their range.
LEVIN_API Schedule reduce_on_plateau(PlateauOptions options);

// Optimizers chosen by name, with their options: as flags, in TOML, and in the record of a run.
//
//   struct Options {
//     levin::optim::OptimizerOptions optimizer = {.name = "adamw"};
//     void fields(levin::FieldVisitor& field) { optimizer.fields(field); }
//   };
//   return options.optimizer.config();  // --optimizer sgd --optimizer.momentum 0.9

/// Choice of a learning rate schedule and its options; an unset option has the schedule's default.
struct LrSchedulerOptions {
  /// Name of one of the functions above, of a class of torch.optim.lr_scheduler with the same
  /// options ("StepLR"), or a name of transformers ("constant_with_warmup"); empty: none.
  std::string name = {};
  /// Options of the schedule by name, as text: {{"warmup_steps", "100"}}. `interval` ("step" or
  /// "epoch") and `frequency` are by_step() and by_epoch().
  std::map<std::string, std::string> options = {};

  /// Lists --lr-scheduler and --lr-scheduler.warmup-steps and so on.
  LEVIN_API void fields(FieldVisitor& field);
  /// Returns the schedule, or nothing without a name. Throws Error "optim.choice" for an unknown
  /// name, for an option that the schedule does not have, and for options without a name; and
  /// "optim.schedule.options" for a value out of range.
  LEVIN_API std::optional<Schedule> schedule() const;
};

/// Choice of an optimizer, its options and its schedule; an unset option has the optimizer's
/// default. Its flags, and the tables [optimizer] and [lr_scheduler] in TOML, follow LightningCLI's.
struct OptimizerOptions {
  /// sgd, adam, adamw, nadam, radam, lion, adafactor, muon, rmsprop or adagrad, or a class of
  /// torch.optim ("AdamW", "torch.optim.AdamW"); empty: none.
  std::string name = {};
  /// Options of the optimizer by name, as text: {{"lr", "3e-4"}, {"betas", "0.9,0.95"}}.
  /// `decay_only_weights`, `master_weights` and `frequency` are those of OptimizerConfig.
  std::map<std::string, std::string> options = {};
  LrSchedulerOptions lr_scheduler = {};  ///< the learning rate schedule

  /// Lists --optimizer, --optimizer.lr and so on, and the flags of the schedule.
  LEVIN_API void fields(FieldVisitor& field);
  /// Returns the description. Throws Error "optim.choice" for an empty or unknown name and for an
  /// option that the optimizer does not have, "base.options.value" for a value that cannot be read,
  /// and the errors of the schedule.
  LEVIN_API OptimizerConfig config() const;
};

// Gradient clipping, by norm and by value, between backward and the optimizer's step. None of these
// functions waits for the device.
//
//   levin::optim::clip_grad_norm(levin::named_parameters(*net), 1.0);

/// Scales the gradients so that the norm of all of them together is at most max_norm, and returns
/// their norm before scaling (0-dim; 0 if there is no gradient): torch.nn.utils.clip_grad_norm_. As
/// in PyTorch, max_norm = 0 makes the gradients zero, and a norm of NaN makes all of them NaN.
/// norm_type may be infinity.
///
/// For a parameter that is sharded over ranks (shard/sharded_tensor.h), the norm covers the shards
/// of all ranks, and elements held by several ranks are counted once. All ranks must call it then,
/// and get the same bits. Throws Error "optim.clip" unless max_norm >= 0 and norm_type > 0, and for
/// gradients that are neither dense nor sparse (COO).
LEVIN_API at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type = 2.0);

/// Options of grad_norm.
struct GradNormOptions {
  double norm_type = 2.0;  ///< p of the p-norm, above 0; infinity: the largest absolute value
  /// Norms to return besides the total: parameter (of each parameter's gradient), layer (of the
  /// gradients of each module's own parameters together) or total (none).
  std::string by = "parameter";
  std::string group_separator = "/";  ///< text between "grad_2.0_norm" and a name
};

/// Returns norms of gradients (0-dim, float32 or float64) with the names of grad_norm in
/// lightning.pytorch.utilities: "grad_2.0_norm/net.0.weight" for each parameter that has a
/// gradient, then "grad_2.0_norm_total" for all gradients together; empty if there is no gradient.
/// The norm of a half-precision gradient is computed in float32. For sharded parameters, see
/// clip_grad_norm. The function does not wait for the device. Throws Error "optim.grad_norm" for
/// options out of range, and "optim.clip" for gradients that are neither dense nor sparse (COO).
LEVIN_API std::vector<NamedTensor> grad_norm(const std::vector<NamedTensor>& parameters,
                                             const GradNormOptions& options = {});

/// Clamps each gradient value to [-clip_value, clip_value]: torch.nn.utils.clip_grad_value_. Throws
/// Error "optim.clip" unless clip_value >= 0, and for gradients that are neither dense nor sparse.
LEVIN_API void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value);

/// Multiplies every gradient by factor.
LEVIN_API void scale_grad(const std::vector<NamedTensor>& parameters, double factor);
/// Divides every gradient by a number, a 0-dim tensor that the host does not read. If the number is
/// 0, the gradients become 0.
LEVIN_API void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by);

}  // namespace levin::optim
