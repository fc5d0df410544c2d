#include <cmath>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run/limits.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class StoppingRule final : public EarlyStopping {
 public:
  explicit StoppingRule(EarlyStoppingOptions options);

  int64_t stopped_epoch() const override { return stopped_epoch_; }
  double best_score() const override { return best_; }
  const std::string& monitor() const override { return options_.monitor; }

  std::string state_key() const override { return "early_stopping-" + options_.monitor; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  bool at_train_epoch_end(const Trainer& trainer) const;
  bool lacks_monitor(Trainer& trainer) const;
  void check(Trainer& trainer);
  std::string judge(double value);  ///< Reason to end the run at this value; empty: none.
  bool beats(double value, double other) const;
  bool may_log(const Trainer& trainer) const;

  EarlyStoppingOptions options_;
  double best_;
  int64_t waited_ = 0;
  int64_t stopped_epoch_ = -1;
};

StoppingRule::StoppingRule(EarlyStoppingOptions options) : options_(std::move(options)) {
  LEVIN_CHECK(!options_.monitor.empty(), "trainer.early_stopping",
              "got no monitor, wanted the name of a logged value; set monitor");
  LEVIN_CHECK(options_.mode == "min" || options_.mode == "max", "trainer.early_stopping",
              "got mode = '{}', wanted min or max", options_.mode);
  LEVIN_CHECK(options_.patience >= 0 && options_.min_delta >= 0.0, "trainer.early_stopping",
              "got patience = {} and min_delta = {}, wanted at least 0", options_.patience,
              options_.min_delta);
  LEVIN_CHECK(!std::isnan(options_.stopping_threshold.value_or(0)) &&
                  !std::isnan(options_.divergence_threshold.value_or(0)),
              "trainer.early_stopping", "got NaN for a threshold, wanted a number");
  const double worst = std::numeric_limits<double>::infinity();
  best_ = options_.mode == "min" ? worst : -worst;
}

State StoppingRule::state_dict() const {
  State state;
  state.set("best", best_).set("waited", waited_);
  return std::move(state.set("stopped_epoch", stopped_epoch_));
}

void StoppingRule::load_state_dict(const State& state) {
  best_ = state.number("best");
  waited_ = state.integer("waited");
  stopped_epoch_ = state.integer("stopped_epoch");
}

void StoppingRule::on_train_start(Trainer& trainer, Module&) {
  const bool never = !at_train_epoch_end(trainer) && !trainer.has_validation();
  if (!never || !trainer.accelerator().is_main_process()) return;
  log::warn(
      "early_stopping: it checks '{}' after each validation, but this run has no validation, so it "
      "never stops the run; set check_on_train_epoch_end = true, or give a validation loader",
      options_.monitor);
}

void StoppingRule::on_evaluation_end(Trainer& trainer, Module&, std::string_view stage) {
  if (stage != "validate" || trainer.sanity_checking() || trainer.options().fast_dev_run > 0)
    return;
  if (!at_train_epoch_end(trainer)) check(trainer);
}

void StoppingRule::on_train_epoch_end(Trainer& trainer, Module&) {
  if (trainer.options().fast_dev_run > 0) return;
  if (at_train_epoch_end(trainer)) check(trainer);
}

bool StoppingRule::at_train_epoch_end(const Trainer& trainer) const {
  return options_.check_on_train_epoch_end.value_or(
      !trainer.has_validation() || detail::validates_once_an_epoch(trainer.options()));
}

bool StoppingRule::beats(double value, double other) const {
  return options_.mode == "min" ? value < other : value > other;
}

std::string StoppingRule::judge(double value) {
  if (options_.check_finite && !std::isfinite(value)) {
    return fmt::format("{} is {}", options_.monitor, value);
  }
  if (options_.stopping_threshold && beats(value, *options_.stopping_threshold)) {
    return fmt::format("{} = {} is better than the stopping_threshold {}", options_.monitor, value,
                       *options_.stopping_threshold);
  }
  if (options_.divergence_threshold && beats(*options_.divergence_threshold, value)) {
    return fmt::format("{} = {} is worse than the divergence_threshold {}", options_.monitor, value,
                       *options_.divergence_threshold);
  }
  const double margin = options_.mode == "min" ? -options_.min_delta : options_.min_delta;
  if (beats(value, best_ + margin)) {  // false for a NaN
    best_ = value;
    waited_ = 0;
    return "";
  }
  if (++waited_ < options_.patience) return "";
  return fmt::format("{} did not improve on {} in {} checks", options_.monitor, best_, waited_);
}

// Rank 0's view for all: another may have logged other names.
bool StoppingRule::lacks_monitor(Trainer& trainer) const {
  const bool lacks = !trainer.callback_metrics().contains(options_.monitor);
  return trainer.accelerator().from_main(lacks);
}

bool StoppingRule::may_log(const Trainer& trainer) const {
  return !options_.log_rank_zero_only || trainer.accelerator().is_main_process();
}

void StoppingRule::check(Trainer& trainer) {
  if (!options_.strict && lacks_monitor(trainer)) {
    if (options_.verbose) {
      log::warn("early_stopping: nothing named '{}' was logged, so this check is left out",
                options_.monitor);
    }
    return;
  }
  const double value = trainer.accelerator().from_main(trainer.monitored(options_.monitor));
  const std::string reason = judge(value);
  if (options_.verbose && reason.empty() && may_log(trainer)) {
    log::info("early_stopping: {} = {}, best {}, {} checks without improvement", options_.monitor,
              value, best_, waited_);
  }
  // One rank's wish is every rank's, or the others would wait for it in the next step.
  if (!trainer.accelerator().any(!reason.empty())) return;
  stopped_epoch_ = trainer.current_epoch();
  trainer.request_stop(reason);
  if (may_log(trainer)) log::info("early_stopping: the run stops because {}", reason);
}

}  // namespace

std::shared_ptr<EarlyStopping> early_stopping(EarlyStoppingOptions options) {
  return std::make_shared<StoppingRule>(std::move(options));
}

}  // namespace levin
