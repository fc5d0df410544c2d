#pragma once
// LearningRateMonitor: logs the learning rate that each optimizer steps with.
//
//   options.callbacks = {levin::learning_rate_monitor()};   // "lr-AdamW"

#include <cstdint>
#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/module/callback.h"
#include "levin/observe/logged.h"

namespace levin {

struct LearningRateMonitorOptions {
  /// step: with the loggers' rows of steps; epoch: at the start of each epoch; empty: with steps,
  /// and of an optimizer without a schedule at the start of each epoch too.
  std::string logging_interval;
  bool log_momentum = false;      ///< and "-momentum", of those with betas the first of them
  bool log_weight_decay = false;  ///< and "-weight_decay"
  std::string log_key_prefix;     ///< before each name
};

/// Names, as in Lightning: "lr-" and the optimizer's class in PyTorch ("lr-AdamW"); a second
/// optimizer of that class gets "-1", a third "-2"; parameter groups, where there are several,
/// "/pg1", "/pg2". Callbacks see the values too. Throws Error "trainer.learning_rate_monitor" for
/// another interval.
class LEVIN_API LearningRateMonitor : public Callback {
 public:
  explicit LearningRateMonitor(LearningRateMonitorOptions options = {});

  std::string state_key() const override { return "learning_rate_monitor"; }
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;

 private:
  enum class Which { kAll, kUnscheduled };
  Scalars values(const Trainer& trainer, Which which) const;

  LearningRateMonitorOptions options_;
  int64_t seen_at_ = -1;  // global step before the last step whose rates were logged
};

LEVIN_API std::shared_ptr<LearningRateMonitor> learning_rate_monitor(
    LearningRateMonitorOptions options = {});

}  // namespace levin
