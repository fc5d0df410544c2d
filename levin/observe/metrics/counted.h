#pragma once
// Metrics of fine-tuning that add up sums: F1 of entities, means of losses. Not for users.
//
//   auto loss = std::make_shared<levin::metrics::WeightedMean>();
//   loss->update(output.loss, output.count);             // in validation_step
//   log("val_loss", loss);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/metric.h"

namespace levin::metrics {

/// F1 of named entities, as seqeval.metrics.f1_score: an entity counts if its begin, end and type
/// are all right. names: the name of each label, "B-PER", "I-PER", "O". An I that no B or I of its
/// type precedes begins an entity.
class LEVIN_API EntityF1 : public Accumulated {
 public:
  explicit EntityF1(std::vector<std::string> names);
  /// scores [B, T, C] or classes [B, T], labels [B, T]; positions of label -100 are left out.
  void update(const at::Tensor& scores, const at::Tensor& labels);
  at::Tensor compute() const override;

 private:
  std::vector<std::string> names_;
};

/// The mean of losses that are means over so many items each, without waiting for either number.
class LEVIN_API WeightedMean : public Accumulated {
 public:
  void update(const at::Tensor& mean, const at::Tensor& items);
  at::Tensor compute() const override;
};

/// exp(sum of losses / tokens). It takes losses that are means over so many tokens.
class LEVIN_API LossPerplexity : public WeightedMean {
 public:
  at::Tensor compute() const override;
};

}  // namespace levin::metrics
