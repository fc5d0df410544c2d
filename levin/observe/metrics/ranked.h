#pragma once
// Metrics of order, which take all samples at once: Spearman's correlation, recall at k. Samples are kept until
// the epoch's end, and those of all ranks are put together then.
//
//   auto spearman = std::make_shared<levin::metrics::Spearman>();
//   spearman->update(cosine, labels);                     // in validation_step
//   log("val_spearman", spearman);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/metric.h"

namespace levin::metrics {

/// The base of metrics of order; not for users.
class LEVIN_API Kept : public Metric {
 public:
  void reset() override { parts_.clear(); }
  void merge(const State& other) override;
  /// {"rows"}: a tensor [samples, width], absent while there are none.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  void keep(const at::Tensor& rows);
  at::Tensor rows() const;  ///< undefined: none

 private:
  std::vector<at::Tensor> parts_;
};

/// Spearman's correlation of two numbers a sample, as scipy.stats.spearmanr; ties have the mean of
/// their ranks.
class LEVIN_API Spearman : public Kept {
 public:
  void update(const at::Tensor& found, const at::Tensor& wanted);
  at::Tensor compute() const override;
};

/// Part of the texts whose own answer is among the k of all answers that are nearest by the cosine.
class LEVIN_API RecallAtK : public Kept {
 public:
  explicit RecallAtK(int64_t k);
  /// Each [B, width]; answers[i] is that of texts[i].
  void update(const at::Tensor& texts, const at::Tensor& answers);
  at::Tensor compute() const override;

 private:
  int64_t k_;
};

}  // namespace levin::metrics
