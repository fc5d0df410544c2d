#pragma once
// Recall at k, which takes all samples at once: they are kept until the epoch's end, and those of all ranks are
// put together then. Not for users.
//
//   auto recall = std::make_shared<levin::metrics::RecallAtK>(10);
//   recall->update(questions, answers);                   // in validation_step
//   log("val_recall_at_10", recall);

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/base/export.h"
#include "levin/observe/metric.h"

namespace levin::metrics {

/// Part of the texts whose own answer is among the k of all answers that are nearest by the cosine.
class LEVIN_API RecallAtK : public Accumulated {
 public:
  explicit RecallAtK(int64_t k);
  /// Each [B, width]; answers[i] is that of texts[i].
  void update(const at::Tensor& texts, const at::Tensor& answers);
  at::Tensor compute() const override;

 private:
  int64_t k_;
};

}  // namespace levin::metrics
