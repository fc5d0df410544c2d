#pragma once
// Metrics of sums: F1, F1 of entities, perplexity. Each batch's sums are added up, over ranks too,
// so that the result is that of the full data set.
//
//   auto f1 = std::make_shared<levin::metrics::F1>(levin::metrics::F1Options{.num_classes = 20});
//   f1->update(logits, labels);                          // in validation_step
//   log("val_f1", f1);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/metric.h"

namespace levin::metrics {

/// The base of metrics of sums; not for users.
class LEVIN_API Counted : public Metric {
 public:
  void reset() override { sums_.reset(); }
  void merge(const State& other) override;
  /// {"sums"}: a tensor of doubles, absent while nothing was counted.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  void add(const at::Tensor& sums);
  bool is_empty() const { return !sums_.defined(); }
  const at::Tensor& sums() const { return sums_; }

 private:
  at::Tensor sums_;
};

struct F1Options {
  int64_t num_classes = 2;
  std::string average = "macro";  ///< the mean over classes that occur; or binary: of class 1
  int64_t ignore_index = -100;    ///< labels of it do not count
};

/// The harmonic mean of precision and recall, as sklearn.metrics.f1_score. Throws Error
/// "observe.metric.options", "observe.metric.shape".
class LEVIN_API F1 : public Counted {
 public:
  explicit F1(F1Options options);
  /// scores [.., C] or classes [..] with labels [..].
  void update(const at::Tensor& scores, const at::Tensor& labels);
  at::Tensor compute() const override;

 private:
  F1Options options_;
};

/// F1 of named entities, as seqeval.metrics.f1_score: an entity counts if its begin, end and type
/// are all right. names: the name of each label, "B-PER", "I-PER", "O". An I that no B or I of its
/// type precedes begins an entity.
class LEVIN_API EntityF1 : public Counted {
 public:
  explicit EntityF1(std::vector<std::string> names);
  /// scores [B, T, C] or classes [B, T], labels [B, T]; positions of label -100 are left out.
  void update(const at::Tensor& scores, const at::Tensor& labels);
  at::Tensor compute() const override;

 private:
  std::vector<std::string> names_;
};

/// The mean of losses that are means over so many items each, without waiting for either number.
class LEVIN_API WeightedMean : public Counted {
 public:
  void update(const at::Tensor& mean, const at::Tensor& items);
  at::Tensor compute() const override;
};

/// exp(sum of losses / tokens). It takes losses that are means over so many tokens.
class LEVIN_API Perplexity : public WeightedMean {
 public:
  at::Tensor compute() const override;
};

}  // namespace levin::metrics
