#pragma once
// Metrics: values over a whole dataset that do not depend on the batch sizes, as
// torchmetrics.Metric. Steps of a module update them and log them by name. They are merged over
// ranks and read at the end of the epoch.
//
//   auto val_f1 = std::make_shared<levin::metrics::F1Score>(
//       levin::metrics::ClassificationOptions{.num_classes = 10, .average = "macro"});
//   val_f1->update(logits, batch["label"]);               // in validation_step
//   log("val_f1", val_f1);                                // computed and reset at the epoch's end

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// A value that is accumulated over batches. The accumulated tensors stay on the device of the
/// inputs of update(); only reading the result of compute() synchronizes with the device.
class LEVIN_API Metric {
 public:
  virtual ~Metric();

  /// Returns the value, a 0-dim float64 tensor on the device of the samples or on the CPU; NaN if
  /// there were none. Metrics whose is_scalar() is false return a tensor with more elements.
  virtual at::Tensor compute() const = 0;
  /// Returns whether compute() gives one number. log() accepts only such metrics.
  virtual bool is_scalar() const;
  /// Forgets all samples.
  virtual void reset() = 0;
  /// Adds the state_dict() of another rank. Ranks may be merged in any grouping.
  virtual void merge(const State& other) = 0;
  /// Accumulated state.
  virtual State state_dict() const = 0;
  /// Replaces the accumulated state.
  virtual void load_state_dict(const State& state) = 0;

 protected:
  /// Returns the value over no samples: NaN, 0-dim.
  static at::Tensor nothing();
};

namespace detail {
class Reduction;
}  // namespace detail

namespace metrics {

/// Common base of the metrics that add up counts or keep their samples; not for users.
class LEVIN_API Accumulated : public Metric {
 public:
  void reset() override;
  void merge(const State& other) override;
  /// {"sums", "rows"}: the sums of all batches, and the samples [N, ...], if there are any.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  void add(const at::Tensor& sums);                 ///< adds the sums of a batch
  const at::Tensor& sums() const { return sums_; }  ///< undefined if there are none
  void keep(const at::Tensor& rows);                ///< keeps the samples of a batch, [N, ...]
  at::Tensor rows() const;                          ///< undefined if there are none

 private:
  virtual at::Tensor joined(const at::Tensor& sums, const at::Tensor& more) const;

  at::Tensor sums_;
  std::vector<at::Tensor> rows_;
};

/// Options of the metrics of predicted classes: Accuracy, Precision, Recall, FBetaScore, F1Score
/// and Specificity. They have the names, meanings and defaults of torchmetrics' arguments.
struct ClassificationOptions {
  std::string task = "multiclass";  ///< "binary", "multiclass" or "multilabel"
  int64_t num_classes = 0;          ///< classes, of multiclass; Accuracy with micro can do without
  int64_t num_labels = 0;           ///< labels of a sample, of multilabel
  /// "micro" counts over all classes at once, "macro" is the mean over classes, "weighted" weighs
  /// it by the number of samples, and "none" gives one value a class. A binary task has none of
  /// these.
  std::string average = "micro";
  double threshold = 0.5;  ///< binary and multilabel: a higher probability is a positive
  int64_t top_k = 1;       ///< multiclass: a sample is correct if its label is among the k highest
  std::optional<int64_t> ignore_index = {};  ///< label of samples that do not count
  double zero_division = 0;  ///< 0 or 1: value of 0 / 0 in Precision, Recall and FBetaScore
};

/// Options of accuracy() and Accuracy.
using AccuracyOptions = ClassificationOptions;

/// Returns the accuracy of a batch, a float32 tensor on the device of scores: Accuracy's value of
/// this batch. Throws the errors of Accuracy.
LEVIN_API at::Tensor accuracy(const at::Tensor& scores, const at::Tensor& labels,
                              const AccuracyOptions& options = {});

/// Common base of Accuracy, Precision, Recall, Specificity and FBetaScore; not for users. Follows
/// torchmetrics.StatScores, counted in int64.
class LEVIN_API StatScores : public Accumulated {
 public:
  using Options = ClassificationOptions;  ///< options of each of them
  /// The ratio.
  enum class Kind { kAccuracy, kPrecision, kRecall, kSpecificity, kFBeta };
  /// Adds a batch. multiclass: scores [N, C, ...] with labels [N, ...]. binary: scores of any
  /// shape, and labels in that shape. multilabel: scores [N, L, ...], and labels in that shape.
  /// Instead of scores, multiclass accepts classes in the shape of labels, and the others 0 and 1,
  /// as integers. Scores of binary and multilabel are probabilities; if a batch has values outside
  /// [0, 1], they are logits. Throws Error "observe.metric.shape", "observe.metric.dtype",
  /// "observe.metric.top_k", and "observe.metric.label" if a label on the CPU is out of range.
  void update(const at::Tensor& scores, const at::Tensor& labels);
  /// Returns the value, 0-dim, or [C] or [L] with average = "none". If a label on another device
  /// was out of range, throws Error "observe.metric.label"; to know that, it waits for the device.
  at::Tensor compute() const override;
  bool is_scalar() const override { return options_.average != "none"; }

 protected:
  /// Throws Error "observe.metric.options".
  StatScores(Kind kind, ClassificationOptions options, double beta = 1);

 private:
  at::Tensor score(const at::Tensor& counts) const;

  Kind kind_;
  ClassificationOptions options_;
  double beta_;
};

/// Fraction of correctly classified samples, as torchmetrics.Accuracy; with top_k top-k accuracy.
/// multiclass with average "micro" is NaN if no sample counts. The constructors of this and the
/// next classes throw Error "observe.metric.options".
class LEVIN_API Accuracy : public StatScores {
 public:
  explicit Accuracy(Options options = {}) : StatScores(Kind::kAccuracy, std::move(options)) {}
};

/// True positives / predicted positives, as torchmetrics.Precision.
class LEVIN_API Precision : public StatScores {
 public:
  explicit Precision(Options options) : StatScores(Kind::kPrecision, std::move(options)) {}
};

/// True positives / positive labels (sensitivity), as torchmetrics.Recall.
class LEVIN_API Recall : public StatScores {
 public:
  explicit Recall(Options options) : StatScores(Kind::kRecall, std::move(options)) {}
};

/// True negatives / negative labels, as torchmetrics.Specificity.
class LEVIN_API Specificity : public StatScores {
 public:
  explicit Specificity(Options options) : StatScores(Kind::kSpecificity, std::move(options)) {}
};

/// Weighted harmonic mean of precision and recall, as torchmetrics.FBetaScore: recall weighs beta
/// times as much as precision.
class LEVIN_API FBetaScore : public StatScores {
 public:
  FBetaScore(double beta, Options options) : StatScores(Kind::kFBeta, std::move(options), beta) {}
};

/// Harmonic mean of precision and recall, as torchmetrics.F1Score.
class LEVIN_API F1Score : public FBetaScore {
 public:
  explicit F1Score(Options options) : FBetaScore(1, std::move(options)) {}
};

/// Number of samples by label (row) and predicted class (column), as torchmetrics.ConfusionMatrix:
/// [C, C], binary [2, 2], multilabel [L, 2, 2].
class LEVIN_API ConfusionMatrix : public Accumulated {
 public:
  /// normalize "none" gives counts. "true" divides by the number of labels of the class, "pred" by
  /// that of its predictions, "all" by the sum of the matrix; 0 / 0 is 0. It takes no average,
  /// top_k and zero_division. Throws Error "observe.metric.options".
  explicit ConfusionMatrix(ClassificationOptions options, std::string normalize = "none");
  /// Adds a batch, with the shapes and errors of StatScores::update.
  void update(const at::Tensor& scores, const at::Tensor& labels);
  at::Tensor compute() const override;
  bool is_scalar() const override { return false; }

 private:
  ClassificationOptions options_;
  std::string normalize_;
};

/// Options of AUROC and AveragePrecision, with the names and defaults of torchmetrics' arguments.
struct CurveOptions {
  std::string task = "multiclass";  ///< "binary", "multiclass" or "multilabel"
  int64_t num_classes = 0;          ///< classes, of multiclass
  int64_t num_labels = 0;           ///< labels of a sample, of multilabel
  std::string average = "macro";    ///< "macro", "weighted", "none"; multilabel also "micro"
  /// Unset: the exact value, which keeps all scores and gathers them over ranks. A number: counts
  /// at that many thresholds from 0 to 1, in constant memory.
  std::optional<int64_t> thresholds = {};
  std::optional<int64_t> ignore_index = {};  ///< label of samples that do not count
  std::optional<double> max_fpr = {};        ///< binary AUROC: area up to this false positive rate
};

/// Common base of AUROC and AveragePrecision; not for users.
class LEVIN_API Curve : public Accumulated {
 public:
  /// The curve.
  enum class Kind { kRoc, kPrecisionRecall };
  /// Adds a batch of scores, real numbers, with the shapes and errors of StatScores::update. If a
  /// batch has values outside [0, 1], they are logits: softmax (multiclass) or sigmoid applies.
  void update(const at::Tensor& scores, const at::Tensor& labels);
  /// Returns the value, 0-dim, or [C] or [L] with average = "none". It waits for the device. Throws
  /// Error "observe.metric.label", as StatScores.
  at::Tensor compute() const override;
  bool is_scalar() const override { return options_.average != "none"; }

 protected:
  /// Throws Error "observe.metric.options".
  Curve(Kind kind, CurveOptions options);

 private:
  Kind kind_;
  CurveOptions options_;
};

/// Area under the receiver operating characteristic curve (ROC AUC), as torchmetrics.AUROC. It is
/// 0 for a class without positive or without negative samples.
class LEVIN_API AUROC : public Curve {
 public:
  explicit AUROC(CurveOptions options) : Curve(Kind::kRoc, std::move(options)) {}
};

/// Mean precision over the recalls, as torchmetrics.AveragePrecision. An exact multiclass average
/// leaves out classes without samples.
class LEVIN_API AveragePrecision : public Curve {
 public:
  explicit AveragePrecision(CurveOptions options)
      : Curve(Kind::kPrecisionRecall, std::move(options)) {}
};

/// Options of the metrics of numbers, with the names and defaults of torchmetrics' arguments.
struct RegressionOptions {
  int64_t num_outputs = 1;  ///< d of inputs [N, d]; 1: inputs [N] or, for errors, of any shape
  bool squared = true;      ///< MeanSquaredError; false gives its root (RMSE)
  int64_t adjusted = 0;     ///< R2Score: number of regressors, for the adjusted score
  std::string multioutput = "uniform_average";  ///< R2Score: or "raw_values", "variance_weighted"
};

/// Common base of the metrics of numbers, which have their moments in float64; not for users.
class LEVIN_API Regression : public Accumulated {
 public:
  using Options = RegressionOptions;  ///< options of each of them
  /// The quantity.
  enum class Kind { kMae, kMse, kR2, kPearson, kSpearman };
  /// Adds a batch: two tensors of one shape. Throws Error "observe.metric.shape" and
  /// "observe.metric.dtype" (complex).
  void update(const at::Tensor& found, const at::Tensor& wanted);
  /// Returns the value, 0-dim, or [num_outputs] if there are several; R2Score has one number unless
  /// multioutput = "raw_values".
  at::Tensor compute() const override;
  bool is_scalar() const override;

 protected:
  /// Throws Error "observe.metric.options".
  Regression(Kind kind, RegressionOptions options);

 private:
  at::Tensor joined(const at::Tensor& sums, const at::Tensor& more) const override;

  Kind kind_;
  RegressionOptions options_;
};

/// As torchmetrics.MeanAbsoluteError (MAE).
class LEVIN_API MeanAbsoluteError : public Regression {
 public:
  explicit MeanAbsoluteError(Options options = {}) : Regression(Kind::kMae, std::move(options)) {}
};

/// As torchmetrics.MeanSquaredError (MSE); with squared = false its root.
class LEVIN_API MeanSquaredError : public Regression {
 public:
  explicit MeanSquaredError(Options options = {}) : Regression(Kind::kMse, std::move(options)) {}
};

/// As torchmetrics.R2Score; NaN for fewer than two samples.
class LEVIN_API R2Score : public Regression {
 public:
  explicit R2Score(Options options = {}) : Regression(Kind::kR2, std::move(options)) {}
};

/// As torchmetrics.PearsonCorrCoef; NaN if the numbers of one side do not vary.
class LEVIN_API PearsonCorrCoef : public Regression {
 public:
  explicit PearsonCorrCoef(Options options = {}) : Regression(Kind::kPearson, std::move(options)) {}
};

/// As torchmetrics.SpearmanCorrCoef, without its 1e-6 in the denominator; ties have the mean of
/// their ranks, and the value is 0 if the numbers of one side do not vary.
class LEVIN_API SpearmanCorrCoef : public Regression {
 public:
  explicit SpearmanCorrCoef(Options options = {})
      : Regression(Kind::kSpearman, std::move(options)) {}
};

/// exp of the mean negative log-likelihood of tokens, as torchmetrics.text.Perplexity.
class LEVIN_API Perplexity : public Accumulated {
 public:
  /// Labels of ignore_index do not count.
  explicit Perplexity(std::optional<int64_t> ignore_index = {}) : ignore_index_(ignore_index) {}
  /// Adds logits [B, T, V] with labels [B, T]. Throws the errors of StatScores::update.
  void update(const at::Tensor& logits, const at::Tensor& labels);
  at::Tensor compute() const override;

 private:
  std::optional<int64_t> ignore_index_;
};

/// Common base of Mean, Sum, Min and Max; not for users.
class LEVIN_API Reduced : public Metric {
 public:
  /// Reduction over all values.
  enum class Kind {
    kMean,  ///< weighted mean
    kSum,   ///< sum
    kMin,   ///< minimum
    kMax    ///< maximum
  };
  ~Reduced() override;
  /// Copies the metric with its state.
  Reduced(const Reduced& other);
  /// Copies the metric with its state.
  Reduced& operator=(const Reduced& other);
  at::Tensor compute() const override;
  /// Forgets all values.
  void reset() override;
  /// Adds the values of another rank.
  void merge(const State& other) override;
  /// Weight and reduced value so far.
  State state_dict() const override;
  /// Replaces the values.
  void load_state_dict(const State& state) override;

 protected:
  /// Creates a metric without values.
  explicit Reduced(Kind kind);
  /// Adds all elements of a tensor.
  void take(const at::Tensor& values, double weight);
  /// Adds a number.
  void take(double value, double weight);

 private:
  Kind kind_;
  std::unique_ptr<detail::Reduction> reduction_;
};

/// Weighted mean of all values, as torchmetrics.MeanMetric.
class LEVIN_API Mean : public Reduced {
 public:
  Mean() : Reduced(Kind::kMean) {}
  /// Adds all elements of a tensor, each with this weight. Throws Error "observe.metric.weight"
  /// (below 0 or not finite) and "observe.metric.dtype" (complex).
  void update(const at::Tensor& values, double weight = 1) { take(values, weight); }
  /// Adds a number with this weight. Throws Error "observe.metric.weight".
  void update(double value, double weight = 1) { take(value, weight); }
};

/// Sum of all values, as torchmetrics.SumMetric; 0 if there are none.
class LEVIN_API Sum : public Reduced {
 public:
  Sum() : Reduced(Kind::kSum) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

/// Minimum of all values, as torchmetrics.MinMetric.
class LEVIN_API Min : public Reduced {
 public:
  Min() : Reduced(Kind::kMin) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

/// Maximum of all values, as torchmetrics.MaxMetric.
class LEVIN_API Max : public Reduced {
 public:
  Max() : Reduced(Kind::kMax) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

}  // namespace metrics
}  // namespace levin
