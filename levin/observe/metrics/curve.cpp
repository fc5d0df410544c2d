#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/observe/metric.h"
#include "levin/observe/metrics/samples.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Labels in kept rows that are no classes.
constexpr int64_t kIgnored = -1, kOutOfRange = -2;

/// Counts of samples with at least some score, from the highest threshold to the lowest.
struct Points {
  std::vector<double> true_positives;
  std::vector<double> false_positives;
  bool all_zero = true;   // all labels are 0: torchmetrics has a rule for it
  bool is_exact = false;  // a point for each score, else for each threshold
};

/// Adds up samples of one class in the order of their scores; labels as kept rows have them.
Points exact_points(const at::Tensor& scores, const at::Tensor& labels, int64_t positive) {
  const auto [sorted, order] = scores.to(at::kDouble).sort(/*dim=*/0, /*descending=*/true);
  const at::Tensor sorted_labels = labels.gather(0, order).to(at::kCPU, at::kDouble);
  const at::Tensor sorted_scores = sorted.cpu();
  const double* score = sorted_scores.const_data_ptr<double>();
  const double* label = sorted_labels.const_data_ptr<double>();
  Points points;
  points.is_exact = true;
  double tp = 0, fp = 0, last = 0;
  const auto close = [&] {
    points.true_positives.push_back(tp);
    points.false_positives.push_back(fp);
  };
  for (int64_t i = 0; i < sorted_scores.size(0); ++i) {
    if (label[i] < 0) continue;
    if (tp + fp > 0 && score[i] != last) close();
    last = score[i];
    (label[i] == static_cast<double>(positive) ? tp : fp) += 1;
    points.all_zero &= label[i] == 0;
  }
  if (tp + fp > 0) close();
  return points;
}

double ratio(double part, double all) { return all > 0 ? part / all : 0; }

/// As torchmetrics' _binary_auroc_compute.
double roc_area(const Points& points, std::optional<double> max_fpr) {
  if (points.true_positives.empty()) return kNan;
  std::vector<double> fpr, tpr;
  // The binned curve of torchmetrics begins at the threshold 1 and not at (0, 0).
  if (points.is_exact) {
    fpr.push_back(0);
    tpr.push_back(0);
  }
  double sum_fpr = 0, sum_tpr = 0;
  for (size_t i = 0; i < points.true_positives.size(); ++i) {
    fpr.push_back(ratio(points.false_positives[i], points.false_positives.back()));
    tpr.push_back(ratio(points.true_positives[i], points.true_positives.back()));
    sum_fpr += fpr.back();
    sum_tpr += tpr.back();
  }
  const bool is_partial = max_fpr && *max_fpr < 1 && sum_fpr > 0 && sum_tpr > 0;
  if (is_partial) {  // ends at max_fpr, between two points
    const auto stop = static_cast<size_t>(std::ranges::upper_bound(fpr, *max_fpr) - fpr.begin());
    // A binned curve can begin above max_fpr; torchmetrics then reads before its first point, which is its last.
    const size_t before = stop > 0 ? stop - 1 : fpr.size() - 1;
    const double weight = (*max_fpr - fpr[before]) / (fpr[stop] - fpr[before]);
    const double at_end = std::lerp(tpr[before], tpr[stop], weight);
    fpr.resize(stop);
    tpr.resize(stop);
    fpr.push_back(*max_fpr);
    tpr.push_back(at_end);
  }
  double area = 0;
  for (size_t i = 1; i < fpr.size(); ++i) {
    area += (fpr[i] - fpr[i - 1]) * (tpr[i] + tpr[i - 1]) / 2;
  }
  if (!is_partial) return area;
  // McClish's correction: 0.5 if the scores say nothing, 1 at most.
  const double least = *max_fpr * *max_fpr / 2;
  return (1 + (area - least) / (*max_fpr - least)) / 2;
}

/// As torchmetrics' _binary_average_precision_compute and _reduce_average_precision.
double precision_recall_area(const Points& points) {
  if (points.true_positives.empty()) return kNan;
  const double positives = points.true_positives.back();
  if (positives == 0) return !points.is_exact || points.all_zero ? 0 : kNan;
  double area = 0, before = 0;
  for (size_t i = 0; i < points.true_positives.size(); ++i) {
    const double tp = points.true_positives[i];
    area += (tp - before) / positives * ratio(tp, tp + points.false_positives[i]);
    before = tp;
  }
  return area;
}

std::vector<double> as_doubles(const at::Tensor& values) {
  const at::Tensor own = values.to(at::kCPU, at::kDouble).contiguous();
  return {own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel()};
}

/// Counts [3, T, L] -> a curve a class, or one of all.
std::vector<Points> binned_curves(const at::Tensor& sums, bool is_micro) {
  at::Tensor counts = sums.cpu();
  check_outside(counts[2][0][0]);
  if (is_micro) counts = counts.sum(2, /*keepdim=*/true);
  std::vector<Points> curves;
  for (int64_t i = 0; i < counts.size(2); ++i) {
    const at::Tensor own = counts.select(2, i).flip(1);
    curves.push_back({.true_positives = as_doubles(own[0]), .false_positives = as_doubles(own[1])});
  }
  return curves;
}

std::vector<Points> exact_curves(const at::Tensor& rows, const CurveOptions& options) {
  const bool is_multiclass = options.task == "multiclass";
  const int64_t classes = is_multiclass ? options.num_classes : rows.size(1) / 2;
  const at::Tensor scores = rows.narrow(1, 0, classes);
  const at::Tensor labels = rows.narrow(1, classes, rows.size(1) - classes);
  check_outside(labels.eq(kOutOfRange).sum());
  if (options.average == "micro") {
    return {exact_points(scores.flatten(), labels.flatten(), 1)};
  }
  std::vector<Points> curves;
  for (int64_t i = 0; i < classes; ++i) {
    curves.push_back(is_multiclass ? exact_points(scores.select(1, i), labels.select(1, 0), i)
                                   : exact_points(scores.select(1, i), labels.select(1, i), 1));
  }
  return curves;
}

}  // namespace

Curve::Curve(Kind kind, CurveOptions options) : kind_(kind), options_(std::move(options)) {
  const char* name = kind == Kind::kRoc ? "AUROC" : "AveragePrecision";
  const Task task = checked_task(name, options_.task, options_.num_classes, options_.num_labels);
  const std::string& average = options_.average;
  const bool is_binary = task == Task::kBinary, is_multilabel = task == Task::kMultilabel;
  check_option(name,
               average == "macro" || (!is_binary && (average == "weighted" || average == "none")) ||
                   (is_multilabel && average == "micro"),
               "average", "'" + average + "'",
               is_binary       ? "no other than the default for a binary task"
               : is_multilabel ? "micro, macro, weighted or none"
                               : "macro, weighted or none");
  const int64_t thresholds = options_.thresholds.value_or(2);
  check_option(name, thresholds >= 2, "thresholds", std::to_string(thresholds), "2 or more");
  if (!options_.max_fpr) return;
  const double max_fpr = *options_.max_fpr;
  check_option(name, kind == Kind::kRoc && is_binary, "max_fpr", std::to_string(max_fpr),
               "none: only AUROC of a binary task has it");
  check_option(name, max_fpr > 0 && max_fpr <= 1, "max_fpr", std::to_string(max_fpr),
               "a number above 0 and at most 1");
}

void Curve::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  const Task task = options_.task == "binary"       ? Task::kBinary
                    : options_.task == "multiclass" ? Task::kMulticlass
                                                    : Task::kMultilabel;
  const bool is_multiclass = task == Task::kMulticlass;
  check_real(scores, labels, task);
  if (is_multiclass) check_multiclass(scores, labels, 1);
  const Samples samples = samples_of(
      task, is_multiclass ? options_.num_classes : std::max<int64_t>(options_.num_labels, 1),
      options_.ignore_index, scores, labels);
  at::Tensor probabilities = normalized(samples, task, /*only_counted=*/task != Task::kMultilabel);
  if (probabilities.scalar_type() != at::kDouble) probabilities = probabilities.to(at::kFloat);
  const at::Tensor ignored = samples.counted.logical_not();

  if (!options_.thresholds) {
    at::Tensor kept = samples.labels.masked_fill(ignored, kIgnored);
    at::Tensor is_outside = ignored;
    if (options_.ignore_index) {
      is_outside = ignored.logical_and(samples.labels.ne(*options_.ignore_index));
    }
    kept = kept.masked_fill(is_outside, kOutOfRange).to(probabilities.scalar_type());
    return keep(at::cat({probabilities, is_multiclass ? kept.unsqueeze(1) : kept}, 1));
  }

  // Sums [3, T, L]: labels 1 and labels 0 whose score reaches the threshold; labels out of range.
  const int64_t classes = probabilities.size(1), bins = *options_.thresholds + 1;
  const at::Tensor thresholds =
      at::linspace(0, 1, *options_.thresholds, at::kFloat).to(probabilities.options());
  const at::Tensor reached =
      at::bucketize(probabilities, thresholds, /*out_int32=*/false, /*right=*/true);
  const at::Tensor each = at::arange(classes, reached.options());
  const at::Tensor is_positive =
      is_multiclass ? samples.labels.unsqueeze(1).eq(each) : samples.labels.eq(1);
  const at::Tensor left_out = is_multiclass ? ignored.unsqueeze(1) : ignored;
  const auto count = [&](const at::Tensor& others) {
    const at::Tensor place =
        (reached * classes + each).masked_fill(others.logical_or(left_out), bins * classes);
    const at::Tensor counts = occurrences(place, bins * classes).view({bins, classes});
    return counts.narrow(0, 1, bins - 1).flip(0).cumsum(0).flip(0);
  };
  const at::Tensor tp = count(is_positive.logical_not());
  add(at::stack({tp, count(is_positive), samples.outside.expand_as(tp)}));
}

at::Tensor Curve::compute() const {
  const detail::OrdinaryTensors guard;
  const at::Tensor own = options_.thresholds ? sums() : rows();
  if (!own.defined()) return nothing();
  const std::vector<Points> curves = options_.thresholds
                                         ? binned_curves(own, options_.average == "micro")
                                         : exact_curves(own, options_);
  std::vector<double> areas, weights;
  for (const Points& points : curves) {
    areas.push_back(kind_ == Kind::kRoc ? roc_area(points, options_.max_fpr)
                                        : precision_recall_area(points));
    weights.push_back(points.true_positives.empty() ? 0 : points.true_positives.back());
  }
  if (options_.average == "none") return at::tensor(areas, at::kDouble).to(own.device());
  // As torchmetrics, a class whose area is NaN is left out.
  double sum = 0, weight = 0, present = 0;
  for (size_t i = 0; i < areas.size(); ++i) {
    if (std::isnan(areas[i])) continue;
    const double own_weight = options_.average == "weighted" ? weights[i] : 1;
    sum += areas[i] * own_weight;
    weight += own_weight;
    present += 1;
  }
  const double value = present == 0 ? kNan : ratio(sum, weight);
  return at::scalar_tensor(value, at::kDouble).to(own.device());
}

}  // namespace levin::metrics
