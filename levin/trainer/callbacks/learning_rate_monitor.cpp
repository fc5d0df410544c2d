#include <map>

#include "levin/base/check.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class LearningRateMonitor : public Callback {
 public:
  /// Throws Error "trainer.learning_rate_monitor" for an unknown interval.
  explicit LearningRateMonitor(LearningRateMonitorOptions options = {});

  std::string state_key() const override { return "learning_rate_monitor"; }
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;

 private:
  enum class Which { kAll, kByStep, kByEpoch };
  Scalars values(const Trainer& trainer, Which which) const;

  LearningRateMonitorOptions options_;
  int64_t seen_at_ = -1;  // global step before the last step whose rates were logged
};

/// Returns the class as PyTorch spells it: "adamw" and "torch::optim::AdamW" are both AdamW.
std::string class_of(const std::string& name) {
  static const std::map<std::string, std::string> kOwn = {
      {"sgd", "SGD"},         {"adam", "Adam"},       {"adamw", "AdamW"},
      {"nadam", "NAdam"},     {"radam", "RAdam"},     {"lion", "Lion"},
      {"rmsprop", "RMSprop"}, {"adagrad", "Adagrad"}, {"adafactor", "Adafactor"},
      {"muon", "Muon"}};
  if (const auto own = kOwn.find(name); own != kOwn.end()) return own->second;
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace

LearningRateMonitor::LearningRateMonitor(LearningRateMonitorOptions options)
    : options_(std::move(options)) {
  const std::string& interval = options_.logging_interval;
  LEVIN_CHECK(interval.empty() || interval == "step" || interval == "epoch",
              "trainer.learning_rate_monitor",
              "got logging_interval = '{}', wanted step, epoch or an empty string", interval);
}

void LearningRateMonitor::on_train_start(Trainer&, Module&) { seen_at_ = -1; }

void LearningRateMonitor::on_train_epoch_start(Trainer& trainer, Module&) {
  if (options_.logging_interval == "step") return;
  const Which which = options_.logging_interval == "epoch" ? Which::kAll : Which::kByEpoch;
  if (const Scalars rates = values(trainer, which); !rates.empty()) trainer.log_row(rates);
}

// It logs before the step, since after it the schedule has moved on; once for all batches of an
// accumulation window.
void LearningRateMonitor::on_train_batch_start(Trainer& trainer, Module&, const Batch&, int64_t) {
  const int64_t done = trainer.global_step();
  const bool is_logged = (done + 1) % trainer.options().log_every_n_steps == 0;
  if (!is_logged || done == seen_at_ || options_.logging_interval == "epoch") return;
  seen_at_ = done;
  const Which which = options_.logging_interval == "step" ? Which::kAll : Which::kByStep;
  trainer.log_metrics(values(trainer, which));
}

Scalars LearningRateMonitor::values(const Trainer& trainer, Which which) const {
  Scalars all;
  std::map<std::string, int64_t> seen;
  for (const PreparedOptimizer& optimizer : trainer.optimizers()) {
    const std::string by_class = "lr-" + class_of(optimizer.optimizer().name());
    const bool has_name =
        optimizer.schedule() != nullptr && !optimizer.schedule()->log_name.empty();
    std::string name =
        options_.log_key_prefix + (has_name ? optimizer.schedule()->log_name : by_class);
    // As in Lightning, a name is not counted, but gets the number of the classes before it.
    const int64_t count = has_name ? seen[by_class] : ++seen[by_class];
    if (count > 1) name += "-" + std::to_string(count - 1);
    // A rate without a schedule is shown at both, as in Lightning.
    if (const Schedule* schedule = optimizer.schedule(); schedule != nullptr) {
      const bool by_epoch = schedule->interval == Schedule::Interval::kEpoch;
      if (which == (by_epoch ? Which::kByStep : Which::kByEpoch)) continue;
    }
    const auto& groups = optimizer.optimizer().groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string group = groups.size() > 1 ? name + "/pg" + std::to_string(i + 1) : name;
      all.push_back({group, groups[i].lr});
      if (options_.log_momentum) all.push_back({group + "-momentum", groups[i].momentum});
      if (options_.log_weight_decay) {
        all.push_back({group + "-weight_decay", groups[i].weight_decay});
      }
    }
  }
  return all;
}

std::shared_ptr<Callback> learning_rate_monitor(LearningRateMonitorOptions options) {
  return std::make_shared<LearningRateMonitor>(std::move(options));
}

}  // namespace levin
