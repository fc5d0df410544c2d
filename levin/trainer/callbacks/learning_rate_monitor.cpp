#include "levin/trainer/callbacks/learning_rate_monitor.h"

#include <map>

#include "levin/trainer/trainer.h"

namespace levin {

void LearningRateMonitor::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&,
                                             const Batch&, int64_t) {
  if (!trainer.should_log() || !trainer.at_step_boundary()) return;
  Scalars rates;
  std::map<std::string, int64_t> seen;
  for (const PreparedOptimizer& optimizer : trainer.optimizers()) {
    std::string name = "lr-" + optimizer.optimizer().name();
    if (const int64_t before = seen[name]++; before > 0) name += "-" + std::to_string(before);
    const auto& groups = optimizer.optimizer().groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string group = groups.size() > 1 ? "/pg" + std::to_string(i + 1) : "";
      rates.push_back({name + group, groups[i].lr});
    }
  }
  trainer.log_metrics(rates);
}

std::shared_ptr<LearningRateMonitor> learning_rate_monitor() {
  return std::make_shared<LearningRateMonitor>();
}

}  // namespace levin
