#pragma once
// LearningRateMonitor: logs each optimizer's learning rate with the loggers' rows.
//
//   options.callbacks = {levin::learning_rate_monitor()};   // "lr-adamw"

#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/module/callback.h"

namespace levin {

/// Names: "lr-" and the optimizer's name; a second optimizer of that name gets "-1", a third "-2";
/// parameter groups, where there are several, "/pg1", "/pg2", as in Lightning.
class LEVIN_API LearningRateMonitor : public Callback {
 public:
  std::string state_key() const override { return "learning_rate_monitor"; }
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
};

LEVIN_API std::shared_ptr<LearningRateMonitor> learning_rate_monitor();

}  // namespace levin
