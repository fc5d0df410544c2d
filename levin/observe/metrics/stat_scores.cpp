#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/observe/metric.h"
#include "levin/observe/metrics/samples.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

// A row of the sums each: [5, C].
constexpr int64_t kTruePositives = 0, kFalsePositives = 1, kTrueNegatives = 2, kFalseNegatives = 3;
constexpr int64_t kOutside = 4;  // the number of labels out of range, in each column

const char* name_of(StatScores::Kind kind) {
  switch (kind) {
    case StatScores::Kind::kAccuracy:
      return "Accuracy";
    case StatScores::Kind::kPrecision:
      return "Precision";
    case StatScores::Kind::kRecall:
      return "Recall";
    case StatScores::Kind::kSpecificity:
      return "Specificity";
    case StatScores::Kind::kFBeta:
      return "FBetaScore";
  }
  TORCH_INTERNAL_ASSERT(false);
}

/// multiclass with average "micro": correct ones are counted without the number of classes.
bool counts_hits(const ClassificationOptions& options) {
  return options.task == "multiclass" && options.num_classes == 0;
}

Task task_of(const ClassificationOptions& options) {
  if (options.task == "binary") return Task::kBinary;
  return options.task == "multiclass" ? Task::kMulticlass : Task::kMultilabel;
}

int64_t classes_of(const ClassificationOptions& options) {
  return options.task == "multiclass" ? options.num_classes
                                      : std::max<int64_t>(options.num_labels, 1);
}

void check_classification(const char* name, const ClassificationOptions& options) {
  const Task task = checked_task(name, options.task, options.num_classes, options.num_labels);
  const std::string& average = options.average;
  const bool is_binary = task == Task::kBinary, is_multiclass = task == Task::kMulticlass;
  check_option(
      name,
      average == "micro" ||
          (!is_binary && (average == "macro" || average == "weighted" || average == "none")),
      "average", "'" + average + "'",
      is_binary ? "no other than the default for a binary task" : "micro, macro, weighted or none");
  check_option(name, options.threshold >= 0 && options.threshold <= 1, "threshold",
               std::to_string(options.threshold), "0 to 1");
  check_option(name, !is_multiclass || options.threshold == 0.5, "threshold",
               std::to_string(options.threshold),
               "none for a multiclass task, which takes the "
               "highest score");
  check_option(name,
               is_multiclass ? options.top_k >= 1 && options.top_k <= options.num_classes
                             : options.top_k == 1,
               "top_k", std::to_string(options.top_k),
               is_multiclass ? "1 to num_classes" : "1: only a multiclass task has others");
}

/// The label where it is among the k highest scores, else the class of the highest one.
at::Tensor refined(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k) {
  const at::Tensor highest = std::get<1>(scores.topk(top_k, 1));
  const at::Tensor is_hit = highest.eq(labels.unsqueeze(1)).any(1);
  return at::where(is_hit, labels, highest.select(1, 0));
}

at::Tensor count_hits(const at::Tensor& scores, const at::Tensor& labels,
                      const ClassificationOptions& options) {
  check_multiclass(scores, labels, options.top_k);
  at::Tensor hits;  // bool, in the shape of labels, or with one more dim of size top_k
  if (labels.dim() == 0 || scores.dim() != labels.dim() + 1) {
    hits = scores.eq(labels);
  } else if (options.top_k == 1) {
    hits = scores.argmax(1).eq(labels);
  } else {
    hits = std::get<1>(scores.topk(options.top_k, 1)).eq(labels.unsqueeze(1));
  }
  at::Tensor correct, wrong;
  if (options.ignore_index) {
    const at::Tensor counted = labels.ne(*options.ignore_index);
    correct = hits.logical_and(hits.dim() == labels.dim() ? counted : counted.unsqueeze(1)).sum();
    wrong = counted.sum() - correct;
  } else {
    correct = hits.sum();
    wrong = labels.numel() - correct;
  }
  const at::Tensor zero = at::zeros_like(correct);
  return at::stack({correct, wrong, zero, wrong, zero}).unsqueeze(1);
}

at::Tensor count_classes(const Samples& samples, const ClassificationOptions& options) {
  const int64_t classes = options.num_classes;
  const at::Tensor found = options.top_k > 1
                               ? refined(samples.scores, samples.labels, options.top_k)
                               : predicted(samples, Task::kMulticlass, options.threshold);
  const at::Tensor ignored = samples.counted.logical_not();
  const at::Tensor labels = samples.labels.masked_fill(ignored, classes);
  const at::Tensor right = labels.masked_fill(found.ne(labels), classes);
  const at::Tensor positives = occurrences(labels, classes);
  const at::Tensor tp = occurrences(right, classes);
  const at::Tensor fp = occurrences(found.masked_fill(ignored, classes), classes) - tp;
  return at::stack(
      {tp, fp, positives.sum() - positives - fp, positives - tp, samples.outside.expand_as(tp)});
}

at::Tensor count_labels(const Samples& samples, const ClassificationOptions& options) {
  const at::Tensor found = predicted(samples, task_of(options), options.threshold).eq(1);
  const at::Tensor wanted = samples.labels.eq(1);
  const auto count = [&](const at::Tensor& where) {
    return where.logical_and(samples.counted).sum(0);
  };
  const at::Tensor tp = count(found.logical_and(wanted));
  const at::Tensor fp = count(found) - tp, fn = count(wanted) - tp;
  return at::stack(
      {tp, fp, samples.counted.sum(0) - tp - fp - fn, fn, samples.outside.expand_as(tp)});
}

}  // namespace

at::Tensor accuracy(const at::Tensor& scores, const at::Tensor& labels,
                    const AccuracyOptions& options) {
  Accuracy metric(options);
  metric.update(scores, labels);
  return metric.compute().to(at::kFloat);
}

StatScores::StatScores(Kind kind, ClassificationOptions options, double beta)
    : kind_(kind), options_(std::move(options)), beta_(beta) {
  const char* name = name_of(kind);
  check_option(name, beta > 0, "beta", std::to_string(beta), "a number above 0");
  const bool divides = kind != Kind::kAccuracy && kind != Kind::kSpecificity;
  const double zero = options_.zero_division;
  check_option(name, zero == 0 || (divides && zero == 1), "zero_division", std::to_string(zero),
               divides ? "0 or 1" : "0, its only value");
  if (kind == Kind::kAccuracy && counts_hits(options_) && options_.average == "micro") {
    check_option(name, options_.threshold == 0.5 && options_.num_labels == 0,
                 "threshold or num_labels", std::to_string(options_.threshold),
                 "neither for a multiclass task");
    return;
  }
  check_classification(name, options_);
}

void StatScores::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  if (counts_hits(options_)) return add(count_hits(scores, labels, options_));
  const Task task = task_of(options_);
  if (task == Task::kMulticlass) check_multiclass(scores, labels, options_.top_k);
  const Samples samples =
      samples_of(task, classes_of(options_), options_.ignore_index, scores, labels);
  add(task == Task::kMulticlass ? count_classes(samples, options_)
                                : count_labels(samples, options_));
}

at::Tensor StatScores::score(const at::Tensor& counts) const {
  const at::Tensor tp = counts[kTruePositives], fp = counts[kFalsePositives],
                   tn = counts[kTrueNegatives], fn = counts[kFalseNegatives];
  const double zero = options_.zero_division;
  switch (kind_) {
    case Kind::kAccuracy:
      if (options_.task != "multiclass") return safe_divide(tp + tn, tp + fp + tn + fn);
      return options_.average == "micro" ? tp / (tp + fn) : safe_divide(tp, tp + fn);
    case Kind::kPrecision:
      return safe_divide(tp, tp + fp, zero);
    case Kind::kRecall:
      return safe_divide(tp, tp + fn, zero);
    case Kind::kSpecificity:
      return safe_divide(tn, tn + fp);
    case Kind::kFBeta: {
      const double square = beta_ * beta_;
      return safe_divide((1 + square) * tp, (1 + square) * tp + square * fn + fp, zero);
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

at::Tensor StatScores::compute() const {
  const detail::OrdinaryTensors guard;
  if (!sums().defined()) return nothing();
  // Nothing is out of range without the number of classes, and accuracy() does not wait.
  if (counts_hits(options_)) return score(sums().to(at::kDouble)).squeeze(0);
  const at::Tensor all = sums().is_xla() ? sums().cpu() : sums();
  check_outside(all[kOutside][0]);
  const at::Tensor counts = all.to(at::kDouble);
  if (options_.average == "micro") return score(counts.sum(1, /*keepdim=*/true)).squeeze(0);
  const at::Tensor each = score(counts);
  if (options_.average == "none") return each;
  // As torchmetrics' _adjust_weights_safe_divide.
  const at::Tensor wanted = counts[kTruePositives] + counts[kFalseNegatives];
  at::Tensor weights = wanted;
  if (options_.average == "macro") {
    weights = at::ones_like(wanted);
    const bool by_label =
        options_.top_k > 1 && kind_ != Kind::kSpecificity && kind_ != Kind::kFBeta;
    const at::Tensor occurs = by_label ? wanted : wanted + counts[kFalsePositives];
    if (options_.task == "multiclass") weights = weights.masked_fill(occurs.eq(0), 0);
  }
  return safe_divide(weights * each, weights.sum()).sum();
}

ConfusionMatrix::ConfusionMatrix(ClassificationOptions options, std::string normalize)
    : options_(std::move(options)), normalize_(std::move(normalize)) {
  constexpr const char* kName = "ConfusionMatrix";
  check_classification(kName, options_);
  check_option(kName, options_.average == "micro", "average", "'" + options_.average + "'",
               "no average");
  check_option(kName, options_.top_k == 1, "top_k", std::to_string(options_.top_k), "1");
  check_option(kName, options_.zero_division == 0, "zero_division",
               std::to_string(options_.zero_division), "0");
  check_option(
      kName,
      normalize_ == "none" || normalize_ == "true" || normalize_ == "pred" || normalize_ == "all",
      "normalize", "'" + normalize_ + "'", "none, true, pred or all");
}

// The sums are the flat matrix and, last, the number of labels out of range.
void ConfusionMatrix::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  const Task task = task_of(options_);
  const int64_t classes = classes_of(options_);
  if (task == Task::kMulticlass) check_multiclass(scores, labels, 1);
  const Samples samples = samples_of(task, classes, options_.ignore_index, scores, labels);
  const at::Tensor found =
      predicted(samples, task, options_.threshold, /*only_counted=*/task == Task::kBinary);
  const bool is_multiclass = task == Task::kMulticlass;
  const int64_t width = is_multiclass ? classes : 2;
  const int64_t places = is_multiclass ? width * width : classes * 4;
  at::Tensor place = samples.labels * width + found;
  if (!is_multiclass) place = place + 4 * at::arange(classes, place.options());
  place = place.masked_fill(samples.counted.logical_not(), places);
  add(at::cat({occurrences(place, places), samples.outside.reshape({1})}));
}

at::Tensor ConfusionMatrix::compute() const {
  const detail::OrdinaryTensors guard;
  if (!sums().defined()) return nothing();
  const at::Tensor all = sums().is_xla() ? sums().cpu() : sums();
  check_outside(all[-1]);
  const int64_t classes = classes_of(options_);
  at::Tensor matrix = all.narrow(0, 0, all.size(0) - 1).to(at::kDouble);
  if (options_.task == "multilabel") {
    matrix = matrix.view({classes, 2, 2});
  } else {
    const int64_t width = options_.task == "binary" ? 2 : classes;
    matrix = matrix.view({width, width});
  }
  if (normalize_ == "true") return safe_divide(matrix, matrix.sum(-1, /*keepdim=*/true));
  if (normalize_ == "pred") return safe_divide(matrix, matrix.sum(-2, /*keepdim=*/true));
  if (normalize_ == "all") return safe_divide(matrix, matrix.sum({-2, -1}, /*keepdim=*/true));
  return matrix.clone();
}

}  // namespace levin::metrics
