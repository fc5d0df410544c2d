#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/optim/optimizer.h"
#include "levin/trainer/callbacks/averaged_tensors.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

constexpr const char* kAverages = "averages";
constexpr const char* kFirstRates = "rates";

/// Computes the statistics of batch norm layers for the module's new weights, as
/// torch.optim.swa_utils.update_bn: their mean over all batches of the training data.
void renew_statistics(Trainer& trainer, const Module& module) {
  using Options = torch::nn::BatchNormOptions;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<Options*, std::optional<double>>> momenta;
  const auto reset = [&](auto* layer) {
    if (layer == nullptr || !layer->running_mean.defined()) return;
    layer->running_mean.zero_();
    layer->running_var.fill_(1);
    layer->num_batches_tracked.zero_();
    momenta.emplace_back(&layer->options, layer->options.momentum());
    layer->options.momentum(std::nullopt);
  };
  for (const auto& part : module.modules()) {
    if (!part->is_training()) continue;
    reset(part->as<torch::nn::BatchNorm1d>());
    reset(part->as<torch::nn::BatchNorm2d>());
    reset(part->as<torch::nn::BatchNorm3d>());
  }
  if (momenta.empty()) return;
  detail::pass_training_data(trainer);
  for (const auto& [options, momentum] : momenta) options->momentum(momentum);
}

class StochasticWeightAveraging final : public Callback {
 public:
  explicit StochasticWeightAveraging(StochasticWeightAveragingOptions options);

  std::string state_key() const override { return "stochastic_weight_averaging"; }
  State state_dict() const override;
  void load_state_dict(const State& state) override { loaded_ = state; }

  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_train_end(Trainer& trainer, Module& module) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;

 private:
  static std::vector<NamedTensor> averaged_of(const Module& module);
  void look_at(Trainer& trainer);
  void begin(Trainer& trainer, const Module& module);
  double fraction_annealed() const;
  void set_rates(Trainer& trainer) const;

  StochasticWeightAveragingOptions options_;
  int64_t first_ = 0;       ///< epoch of the first update
  int64_t max_epochs_ = 0;  ///< -1: no limit
  detail::AveragedTensors tensors_;
  std::vector<double> rates_;  ///< learning rates before the first update; empty: not begun
  int64_t epochs_ = 0;         ///< epochs that have ended since
  State loaded_;               ///< the state of a checkpoint, until the module is there
};

StochasticWeightAveraging::StochasticWeightAveraging(StochasticWeightAveragingOptions options)
    : options_(std::move(options)) {
  const auto is_rate = [](double rate) { return rate > 0.0 && std::isfinite(rate); };
  LEVIN_CHECK(!options_.swa_lrs.empty() && std::ranges::all_of(options_.swa_lrs, is_rate),
              "trainer.weight_averaging", "got swa_lrs = [{}], wanted one or more positive numbers",
              to_text(options_.swa_lrs));
  const Portion& start = options_.swa_epoch_start;
  LEVIN_CHECK(
      start.valid() && (start.is_fraction() || !start.is_none()), "trainer.weight_averaging",
      "got swa_epoch_start = {}, wanted an epoch of at least 1, or a fraction of max_epochs",
      to_text(start));
  LEVIN_CHECK(options_.annealing_epochs >= 0, "trainer.weight_averaging",
              "got annealing_epochs = {}, wanted at least 0", options_.annealing_epochs);
  LEVIN_CHECK(options_.annealing_strategy == "cos" || options_.annealing_strategy == "linear",
              "trainer.weight_averaging", "got annealing_strategy = '{}', wanted cos or linear",
              options_.annealing_strategy);
}

// Lightning averages parameters, frozen ones too.
std::vector<NamedTensor> StochasticWeightAveraging::averaged_of(const Module& module) {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (parameter.tensor.is_floating_point()) tensors.push_back(parameter);
  }
  return tensors;
}

void StochasticWeightAveraging::look_at(Trainer& trainer) {
  const TrainerOptions& options = trainer.options();
  const bool is_limited = options.max_steps >= 0 || !options.max_time.empty();
  max_epochs_ = options.max_epochs.value_or(is_limited ? -1 : 1000);
  LEVIN_CHECK(!options_.swa_epoch_start.is_fraction() || max_epochs_ >= 0,
              "trainer.weight_averaging",
              "got swa_epoch_start = {} but no max_epochs; set max_epochs, "
              "or give the number of an epoch",
              to_text(options_.swa_epoch_start));
  const int64_t start = options_.swa_epoch_start.of(
      options_.swa_epoch_start.is_fraction() ? max_epochs_ : std::numeric_limits<int64_t>::max());
  first_ = std::max<int64_t>(start - 1, 0);
  LEVIN_CHECK(trainer.optimizers().size() == 1, "trainer.weight_averaging",
              "stochastic_weight_averaging got a module with {} optimizers, wanted 1; use "
              "weight_averaging",
              trainer.optimizers().size());
  const size_t groups = trainer.optimizers()[0].optimizer().groups().size();
  LEVIN_CHECK(options_.swa_lrs.size() == 1 || options_.swa_lrs.size() == groups,
              "trainer.weight_averaging",
              "got {} swa_lrs for {} parameter groups; give one for all, or one for each",
              options_.swa_lrs.size(), groups);
}

void StochasticWeightAveraging::on_fit_start(Trainer& trainer, Module&) {
  look_at(trainer);
  if (loaded_.empty()) {  // as a run before may have left them
    tensors_.clear();
    rates_.clear();
    epochs_ = 0;
  }
  loaded_ = State();
}

void StochasticWeightAveraging::begin(Trainer& trainer, const Module& module) {
  tensors_.begin(averaged_of(module));
  for (const optim::ParameterGroup& group : trainer.optimizers()[0].optimizer().groups()) {
    rates_.push_back(group.lr);
  }
  log::info("stochastic_weight_averaging: it begins with epoch {}", trainer.current_epoch());
}

// A run that stops inside an epoch resumes after this hook.
void StochasticWeightAveraging::on_train_epoch_start(Trainer& trainer, Module& module) {
  const int64_t epoch = trainer.current_epoch();
  if (epoch < first_ || (max_epochs_ >= 0 && epoch >= max_epochs_)) return;
  if (rates_.empty()) begin(trainer, module);
  set_rates(trainer);
  tensors_.update(std::nullopt, options_.avg_fn);
}

void StochasticWeightAveraging::on_train_epoch_end(Trainer& trainer, Module&) {
  if (rates_.empty()) return;
  ++epochs_;
  set_rates(trainer);
}

// torch.optim.swa_utils.SWALR
double StochasticWeightAveraging::fraction_annealed() const {
  if (options_.annealing_epochs == 0) return 1.0;
  const double t =
      std::min(1.0, static_cast<double>(epochs_) / static_cast<double>(options_.annealing_epochs));
  return options_.annealing_strategy == "cos" ? (1.0 - std::cos(std::numbers::pi * t)) / 2.0 : t;
}

void StochasticWeightAveraging::set_rates(Trainer& trainer) const {
  const double annealed = fraction_annealed();
  auto& groups = trainer.optimizers()[0].optimizer().groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    const double last = options_.swa_lrs[options_.swa_lrs.size() == 1 ? 0 : i];
    groups[i].follows_schedule = false;
    groups[i].lr = last * annealed + rates_.at(i) * (1.0 - annealed);
  }
}

void StochasticWeightAveraging::on_train_end(Trainer& trainer, Module& module) {
  if (rates_.empty()) return;
  if (max_epochs_ >= 0 && trainer.current_epoch() < max_epochs_) {
    log::warn(
        "stochastic_weight_averaging: the run ended in epoch {} of {}, so the module keeps its "
        "trained weights",
        trainer.current_epoch(), max_epochs_);
    return;
  }
  tensors_.swap();
  tensors_.clear();
  if (module.automatic_optimization) renew_statistics(trainer, module);
}

State StochasticWeightAveraging::state_dict() const {
  State state, rates;
  for (size_t i = 0; i < rates_.size(); ++i) rates.set(std::to_string(i), rates_[i]);
  state.set("num_updates", tensors_.num_updates()).set("epochs", epochs_);
  state.set(kFirstRates, std::move(rates));
  return std::move(state.set(kAverages, rates_.empty() ? State() : tensors_.averages()));
}

void StochasticWeightAveraging::on_load_checkpoint(Trainer& trainer, Module& module, const State&) {
  rates_.clear();
  epochs_ = 0;
  if (loaded_.empty() || loaded_.child(kFirstRates).empty()) return;
  look_at(trainer);
  const State& rates = loaded_.child(kFirstRates);
  LEVIN_CHECK(rates.values().size() == trainer.optimizers()[0].optimizer().groups().size(),
              "trainer.weight_averaging",
              "the checkpoint has rates of {} parameter groups, wanted {}; resume with the same "
              "parameter groups",
              rates.values().size(), trainer.optimizers()[0].optimizer().groups().size());
  for (size_t i = 0; i < rates.values().size(); ++i) {
    rates_.push_back(rates.number(std::to_string(i)));
  }
  tensors_.begin(averaged_of(module));
  tensors_.load_averages(loaded_.child(kAverages));
  tensors_.set_num_updates(loaded_.integer("num_updates"));
  epochs_ = loaded_.integer("epochs");
  set_rates(trainer);
}

}  // namespace

std::shared_ptr<Callback> stochastic_weight_averaging(StochasticWeightAveragingOptions options) {
  return std::make_shared<StochasticWeightAveraging>(std::move(options));
}

}  // namespace levin
