// The search for a learning rate; follows lightning/pytorch/tuner/lr_finder.py of Lightning 2.6.

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/tuner/trial.h"

namespace levin::detail {
namespace {

constexpr double kBeta = 0.98;  // weight of the average before, as Lightning's _LRCallback

/// The rate of a step, from 0. As in Lightning the second step has the second rate above min_lr, so
/// that the last one has max_lr.
double rate_at(const LrFindOptions& options, int64_t step) {
  if (step == 0) return options.min_lr;
  const double part = static_cast<double>(step + 1) / static_cast<double>(options.num_training);
  if (options.mode == "linear") return options.min_lr + part * (options.max_lr - options.min_lr);
  return options.min_lr * std::pow(options.max_lr / options.min_lr, part);
}

/// Sets the rate of each step and keeps its loss; Lightning's _LRCallback.
class RateRange final : public TrialListener {
 public:
  explicit RateRange(const LrFindOptions& options)
      : options_(options), found_{.mode = options.mode} {}

  void on_train_batch_start(Trainer& trainer, Module&, const Batch&, int64_t) override {
    for (const PreparedOptimizer& optimizer : trainer.optimizers()) {
      for (optim::ParameterGroup& group : optimizer.optimizer().groups()) {
        group.lr = rate_at(options_, windows_);
      }
    }
  }

  void on_train_batch_end(Trainer& trainer, Module&, const at::Tensor& loss, const Batch&,
                          int64_t batch_index) override {
    if (!trainer.at_step_boundary()) return;
    const double rate = rate_at(options_, windows_++);
    // As in Lightning, a window that the epoch's end cut short is stepped with, but not noted.
    const int64_t window = trainer.accumulate_grad_batches();
    if (!is_over_ && (batch_index + 1) % window == 0) note(trainer, rate, loss);
    if (is_over_ || windows_ >= options_.num_training) trainer.request_stop("the search has ended");
  }

  LrFinder take() { return std::move(found_); }

 private:
  void note(Trainer& trainer, double rate, const at::Tensor& loss) {
    found_.rates.push_back(rate);
    const std::optional<double> now = mean_over_ranks(trainer, loss);
    if (!now) return found_.losses.push_back(std::numeric_limits<double>::quiet_NaN());
    average_ = kBeta * average_ + (1.0 - kBeta) * *now;
    const double smoothed = average_ / (1.0 - std::pow(kBeta, static_cast<double>(windows_ + 1)));
    is_over_ = options_.early_stop_threshold && windows_ > 1 &&
               smoothed > *options_.early_stop_threshold * best_;
    if (smoothed < best_ || windows_ == 1) best_ = smoothed;
    found_.losses.push_back(smoothed);
  }

  /// The curve of several ranks is that of one with their batches. Nothing without a loss.
  static std::optional<double> mean_over_ranks(Trainer& trainer, const at::Tensor& loss) {
    const at::Tensor sums = at::full({2}, 0.0, at::kDouble);
    if (loss.defined()) {
      sums[0] = loss.detach().to(at::kCPU, at::kDouble).item<double>();
      sums[1] = 1.0;
    }
    trainer.accelerator().world().all_reduce(sums, ReduceOp::kSum);
    const double count = sums[1].item<double>();
    if (count == 0.0) return std::nullopt;
    return sums[0].item<double>() / count;
  }

  LrFindOptions options_;
  LrFinder found_;
  int64_t windows_ = 0;  ///< accumulation windows that are complete: Lightning's global_step
  double average_ = 0.0;
  double best_ = 0.0;
  bool is_over_ = false;  ///< the loss has diverged
};

OptimizerConfig::Kind with_rate(OptimizerConfig::Kind kind, double lr) {
  std::visit([lr](auto& options) { options.lr = lr; }, kind);
  return kind;
}

/// Returns the description with another learning rate, also for its parameter groups.
OptimizerConfig with_rate(const OptimizerConfig& config, double lr) {
  OptimizerConfig changed(with_rate(config.kind(), lr));
  for (const OptimizerConfig::Group& group : config.groups()) {
    changed.group(group.pattern, {.weight_decay = group.options.weight_decay});
  }
  changed.parameters(config.pattern()).decay_only_weights(config.decays_only_weights());
  if (config.filter()) changed.parameters_if(config.filter());
  if (config.module() != nullptr) changed.of(*config.module());
  if (config.schedule()) changed.schedule(*config.schedule());
  return changed.frequency(config.frequency()).master_weights(config.has_master_weights());
}

/// Returns the one description, without its schedule.
OptimizerConfig without_schedule(const OptimizerConfig& config, double lr) {
  OptimizerConfig changed = with_rate(config, lr);
  changed.schedule({.name = "search", .factor = [](int64_t, int64_t) { return 1.0; }});
  return changed;
}

void check_optimizers(const std::vector<OptimizerConfig>& configs) {
  LEVIN_CHECK(configs.size() == 1, "trainer.lr_find",
              "configure_optimizers() returned {} optimizers, but the learning rate finder works "
              "with one; return one",
              configs.size());
  const OptimizerConfig& config = configs.front();
  LEVIN_CHECK(config.frequency() == 1, "trainer.lr_find",
              "got an optimizer with frequency({}), wanted one that steps at each training step; "
              "leave frequency out, or use accumulate_grad_batches",
              config.frequency());
  const auto* adafactor = std::get_if<AdafactorOptions>(&config.kind());
  LEVIN_CHECK(adafactor == nullptr || !adafactor->relative_step, "trainer.lr_find",
              "adafactor with relative_step has no learning rate to find; set lr and "
              "relative_step = false");
}

}  // namespace

void check_options(const LrFindOptions& options) {
  constexpr const char* kId = "trainer.lr_find";
  LEVIN_CHECK(options.mode == "exponential" || options.mode == "linear", kId,
              "got mode = '{}', wanted exponential or linear", options.mode);
  LEVIN_CHECK(options.num_training > 0, kId, "got num_training = {}, wanted at least 1",
              options.num_training);
  LEVIN_CHECK(std::isfinite(options.min_lr) && std::isfinite(options.max_lr) &&
                  options.min_lr < options.max_lr,
              kId, "got min_lr = {} and max_lr = {}, wanted min_lr below max_lr", options.min_lr,
              options.max_lr);
  LEVIN_CHECK(options.min_lr > 0.0 || (options.mode == "linear" && options.min_lr == 0.0), kId,
              "got min_lr = {}, wanted a number above 0; with mode = linear also 0",
              options.min_lr);
  LEVIN_CHECK(!options.early_stop_threshold || *options.early_stop_threshold > 0.0, kId,
              "got early_stop_threshold = {}, wanted a number above 0, or none",
              options.early_stop_threshold.value_or(0.0));
}

void set_learning_rate(std::vector<OptimizerConfig>& configs, double lr) {
  check_optimizers(configs);
  configs.front() = with_rate(configs.front(), lr);
}

LrFinder find_learning_rate(Trainer& trainer, const Tuned& tuned, const LrFindOptions& options) {
  check_options(options);
  LEVIN_CHECK(tuned.module == nullptr || tuned.module->automatic_optimization, "trainer.lr_find",
              "{} uses manual optimization (automatic_optimization = false), so the learning rate "
              "finder cannot set its rates; use automatic optimization",
              tuned.module->name());
  if (Trial::skips(trainer, "the learning rate finder")) return {.mode = options.mode};
  const auto range = std::make_shared<RateRange>(options);
  Trial::run(trainer, tuned,
             {.max_steps = options.num_training,
              .listener = range,
              .change_optimizers = [&options](std::vector<OptimizerConfig>& configs) {
                check_optimizers(configs);
                configs.front() = without_schedule(configs.front(), options.min_lr);
              }});
  LrFinder found = range->take();
  const std::optional<double> best = found.suggestion();
  if (best) {
    log::info("trainer: the learning rate finder suggests {:.4g} ({} steps from {:g} to {:g})",
              *best, found.rates.size(), options.min_lr, options.max_lr);
    if (options.update_attr) options.update_attr(*best);
  } else {
    log::warn(
        "trainer: the learning rate finder has {} losses, too few for a suggestion; raise "
        "num_training, max_epochs or the size of the data",
        found.losses.size());
  }
  return found;
}

}  // namespace levin::detail
