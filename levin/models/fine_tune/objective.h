#pragma once
// Objective: what a fine-tuned model is trained for: the loss of a batch, and the metrics of validation.
// Not for users; fine_tune() makes one, and a Module calls it.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/data/batch.h"
#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/pretrained.h"
#include "levin/observe/metric.h"

namespace levin::models {

struct StepLoss {
  at::Tensor loss;   ///< the mean over this batch
  at::Tensor count;  ///< number of values in the mean
  /// More to be logged, each a scalar.
  std::vector<std::pair<std::string, at::Tensor>> values = {};
};

class Objective {
 public:
  virtual ~Objective() = default;

  /// group: the ranks that train on other batches at the same time.
  virtual StepLoss train(const Batch& batch, const comm::ProcessGroup& group) = 0;
  /// Adds a batch to the metrics; no rank waits for another.
  virtual void evaluate(const Batch& batch) = 0;
  virtual at::Tensor predict(const Batch& batch) = 0;

  /// By the name that follows "val_".
  using Metrics = std::vector<std::pair<std::string, std::shared_ptr<Metric>>>;
  const Metrics& metrics() const { return metrics_; }

 protected:
  template <class Kind, class... Args>
  std::shared_ptr<Kind> metric(const std::string& name, Args&&... args) {
    auto made = std::make_shared<Kind>(std::forward<Args>(args)...);
    metrics_.emplace_back(name, made);
    return made;
  }

 private:
  Metrics metrics_;
};

/// The loss that the model's task has with labels.
std::unique_ptr<Objective> label_objective(std::shared_ptr<Pretrained> net);
LEVIN_API std::unique_ptr<Objective> dpo_objective(std::shared_ptr<Pretrained> net,
                                                   const FineTuneOptions& options);
/// Makes the objective that `which` names: in-batch-negatives, cosine or triplet.
std::unique_ptr<Objective> embedding_objective(std::shared_ptr<Pretrained> net,
                                               const std::string& which,
                                               const FineTuneOptions& options);

/// Fields [B, n, T] as rows [B n, T] of a batch.
Batch with_rows(const Batch& batch);

}  // namespace levin::models
