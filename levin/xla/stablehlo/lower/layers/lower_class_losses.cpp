// Losses of classes: nll_loss and the margin losses. The target is found by comparison with each
// class: this fuses with the scores' computation, and a gather would not.
#include <ATen/core/Reduction.h>

#include <algorithm>
#include <limits>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Scores x with classes in dimension `dim`, and masks over x's sizes and over the targets'.
struct Classes {
  Lowering& at;
  Hlo x, target;  ///< the target as i64, without the dimension of classes
  int64_t dim;
  Dims kept;  ///< x's sizes with one class

  Term spread(const Hlo& of_samples) const {
    return {at.hlo, at.hlo.expand(at.hlo.reshape(of_samples, kept), x.sizes)};
  }
  Term is_target() const {
    const Term place(at.hlo, at.hlo.iota(at::kLong, x.sizes, dim));
    return same(place, spread(target));
  }
  Term row() const { return {at.hlo, target}; }
  /// Tells for each sample whether its target is a class. If it is not, ATen throws; here the loss
  /// is NaN.
  Term is_class() const { return (row() >= 0) & (row() < static_cast<double>(x.sizes[dim])); }
  Term sum(const Term& each) const { return {at.hlo, at.sum(each, {dim}, /*keepdim=*/false)}; }
  /// A number of each class, repeated to x's sizes.
  Term of_class(const Hlo& numbers) const {
    return {at.hlo, at.hlo.broadcast_in_dim(numbers, x.sizes, {dim})};
  }
};

/// Scores [C], [N, C] or [N, C, ...]; targets without C.
Classes classes_of(Lowering& at, size_t scores, size_t target) {
  const at::ScalarType dtype = at.tensor(scores).dtype;
  const Hlo x = at.tensor(scores, Lowering::compute_dtype(dtype));
  const int64_t dim = x.rank() == 1 ? 0 : 1;
  Dims kept = x.sizes;
  kept[dim] = 1;
  Dims samples = x.sizes;
  samples.erase(samples.begin() + dim);
  return {at, x, at.hlo.reshape(at.tensor(target, at::kLong), samples), dim, kept};
}

/// Returns the weight of each sample: its class's, 0 if it is ignored, NaN if it has none.
Term weights_of(const Classes& classes, size_t weight, int64_t ignored) {
  Lowering& at = classes.at;
  const Term is_ignored = same(classes.row(), static_cast<double>(ignored));
  const Term ones(at.hlo, at.hlo.constant(1, classes.x.dtype, classes.target.sizes));
  const auto checked = [&](const Term& weights) {
    return where(is_ignored, 0, where(classes.is_class(), weights, kNaN));
  };
  if (!at.has(weight)) return checked(ones);
  const Term of_class = classes.of_class(at.tensor(weight, classes.x.dtype));
  return checked(classes.sum(where(classes.is_target(), of_class, 0)));
}

Term total_of(Lowering& at, const Term& each) {
  Dims all(each.sizes().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return {at.hlo, at.sum(each, all, /*keepdim=*/false)};
}

/// input, target, weight, reduction, ignore_index -> loss, the sum of weights
void lower_nll_loss(Lowering& at) {
  const Classes classes = classes_of(at, 0, 1);
  const Term weights = weights_of(classes, 2, at.integer(4));
  const Term x(at.hlo, classes.x);
  const Term picked = classes.sum(where(classes.is_target(), x, 0));
  const Term each = where(same(weights, 0), 0, -picked * weights);
  const bool is_each = at.integer(3) == at::Reduction::None;
  if (is_each) {
    at.give(each);
    return at.give(at.hlo.constant(0, at.dtype(1)));
  }
  const Term total = total_of(at, weights);
  const Term loss = total_of(at, each);
  at.give(at.integer(3) == at::Reduction::Mean ? loss / total : loss);
  at.give(total);
}

/// grad, input, target, weight, reduction, ignore_index, the sum of weights
void lower_nll_loss_backward(Lowering& at) {
  const Classes classes = classes_of(at, 1, 2);
  Term grad(at.hlo, at.tensor(0, classes.x.dtype));
  if (at.integer(4) == at::Reduction::Mean) grad = grad / Term(at.hlo, at.tensor(6, grad.dtype()));
  const Term weights = weights_of(classes, 3, at.integer(5));
  const Term each = -weights * grad.expanded(weights.sizes());
  const Term is_used = classes.spread(where(same(weights, 0), 0, weights.number(1)).as(at::kBool));
  const Term is_lost = classes.spread(!(classes.is_class() | same(weights, 0)));
  at.give(where((classes.is_target() & is_used) | is_lost, classes.spread(each), 0));
}

/// Argument `first`: p, margin, weight, reduction.
struct MarginOptions {
  double p, margin;
  bool has_weight;
  double scale;  ///< by the number of classes, and for a mean of samples
};

MarginOptions margin_options(Lowering& at, size_t first, const Classes& classes) {
  const bool is_mean = at.integer(first + 3) == at::Reduction::Mean;
  const auto num_classes = static_cast<double>(classes.x.sizes[classes.dim]);
  const auto samples = static_cast<double>(classes.target.numel());
  return {at.number(first), at.number(first + 1), at.has(first + 2),
          1 / (is_mean ? num_classes * samples : num_classes)};
}

/// Returns by how much each class but the target exceeds the margin; 0 if it does not.
Term excess_of(const Classes& classes, double margin) {
  const Term x(classes.at.hlo, classes.x);
  const Term picked = classes.sum(where(classes.is_target(), x, 0));
  const Term excess = margin - classes.spread(picked) + x;
  const Term each = where(classes.is_target(), 0, maximum(excess, 0));
  return where(classes.spread(classes.is_class()), each, kNaN);
}

Term class_weights(const Classes& classes, size_t weight) {
  const Term of_class = classes.of_class(classes.at.tensor(weight, classes.x.dtype));
  return classes.spread(classes.sum(where(classes.is_target(), of_class, 0)));
}

/// The sum over classes, and over samples where they are reduced.
void give_margin_loss(const Classes& classes, const Term& each, bool is_each) {
  Lowering& at = classes.at;
  if (!is_each) return at.give(total_of(at, each));
  at.give(at.hlo.reshape(classes.sum(each), at.sizes()));
}

/// input, target, p, margin, weight, reduction
void lower_multi_margin_loss(Lowering& at) {
  const Classes classes = classes_of(at, 0, 1);
  const MarginOptions options = margin_options(at, 2, classes);
  const Term excess = excess_of(classes, options.margin);
  Term each = options.p == 1 ? excess : excess * excess;
  if (options.has_weight) each = each * class_weights(classes, 4);
  give_margin_loss(classes, each * options.scale, at.integer(5) == at::Reduction::None);
}

/// grad, input, target, p, margin, weight, reduction
void lower_multi_margin_loss_backward(Lowering& at) {
  const Classes classes = classes_of(at, 1, 2);
  const MarginOptions options = margin_options(at, 3, classes);
  const Term excess = excess_of(classes, options.margin);
  Term slope = options.p == 1 ? (excess > 0).as(excess.dtype()) : 2 * excess;
  if (options.has_weight) slope = slope * class_weights(classes, 5);
  slope = slope * options.scale;
  const Term whole = where(classes.is_target(), -classes.spread(classes.sum(slope)), slope);
  const Hlo grad = at.tensor(0, classes.x.dtype);
  at.give(whole * (grad.numel() == 1
                       ? Term(at.hlo, at.hlo.reshape(grad, {})).expanded(whole.sizes())
                       : classes.spread(grad)));
}

/// Labels [N, K] up to the first -1 of each row, over scores [N, C]. With labels in dimension 1 and
/// classes in 2: [N, K, C].
struct Labels {
  Term scores;       ///< [N, C]
  Term is_label;     ///< [N, K, C]
  Term is_labelled;  ///< [N, C]
  Term excess;       ///< [N, K, C]: of classes without label over each label
  double scale;
};

Labels labels_of(Lowering& at, size_t scores, size_t target, int64_t reduction) {
  const at::ScalarType dtype = at.tensor(scores).dtype;
  Hlo x = at.tensor(scores, Lowering::compute_dtype(dtype));
  const int64_t num_classes = x.rank() == 0 ? 1 : x.sizes.back();
  const int64_t samples = x.rank() < 2 ? 1 : x.sizes[0];
  x = at.hlo.reshape(x, {samples, num_classes});
  const Term labels(at.hlo, at.hlo.reshape(at.tensor(target, at::kLong), x.sizes));
  const Dims cube = {samples, num_classes, num_classes};
  const auto over = [&](const Hlo& value, const Dims& dims) {
    return Term(at.hlo, at.hlo.broadcast_in_dim(value, cube, dims));
  };
  const Term place(at.hlo, at.hlo.iota(at::kLong, x.sizes, 1));
  const Term ends = where(labels < 0, place, static_cast<double>(num_classes));
  const Hlo end = at.hlo.reduce("minimum", ends, at.hlo.constant(num_classes, at::kLong), {1});
  const Term is_valid = place < Term(at.hlo, at.hlo.broadcast_in_dim(end, x.sizes, {0}));
  const Term is_lost = is_valid & (labels >= static_cast<double>(num_classes));
  const Term classes(at.hlo, at.hlo.iota(at::kLong, cube, 2));
  const Term is_label = same(classes, over(labels, {0, 1})) & over(is_valid, {0, 1});
  const Hlo is_labelled = at.hlo.reduce("or", is_label, at.hlo.constant(false, at::kBool), {1});
  const Hlo picked = at.sum(where(is_label, over(x, {0, 2}), 0), {2}, /*keepdim=*/false);
  const Term gap = 1 - over(picked, {0, 1}) + over(x, {0, 2});
  const Term excess = where(over(is_lost, {0, 1}), kNaN, maximum(gap, 0));
  const Term counts = over(is_valid, {0, 1}) & !over(is_labelled, {0, 2});
  const double divisor = reduction == at::Reduction::Mean ? static_cast<double>(samples) : 1.0;
  return {Term(at.hlo, x), is_label, Term(at.hlo, is_labelled), where(counts, excess, 0),
          1 / (divisor * static_cast<double>(num_classes))};
}

/// input, target, reduction -> loss, which classes are labels
void lower_multilabel_margin_loss(Lowering& at) {
  const Labels labels = labels_of(at, 0, 1, at.integer(2));
  const Term each = labels.excess * labels.scale;
  if (at.integer(2) == at::Reduction::None) {
    at.give(at.hlo.reshape(at.sum(each, {1, 2}, /*keepdim=*/false), at.sizes()));
  } else {
    at.give(total_of(at, each));
  }
  at.give(at.hlo.reshape(labels.is_labelled.as(at.dtype(1)), at.sizes(1)));
}

/// grad, input, target, reduction, is_target
void lower_multilabel_margin_loss_backward(Lowering& at) {
  const Labels labels = labels_of(at, 1, 2, at.integer(3));
  const Term is_over = (labels.excess > 0).as(labels.scores.dtype());
  const Hlo up = at.sum(is_over, {1}, /*keepdim=*/false);
  const Hlo over_label = at.sum(is_over, {2}, /*keepdim=*/false);
  const Term spread(at.hlo, at.hlo.broadcast_in_dim(over_label, is_over.sizes(), {0, 1}));
  const Hlo down = at.sum(where(labels.is_label, spread, 0), {1}, /*keepdim=*/false);
  const Term slope = (Term(at.hlo, up) - Term(at.hlo, down)) * labels.scale;
  const Hlo grad = at.tensor(0, slope.dtype());
  const bool is_one = grad.numel() == 1;
  const Hlo factor = is_one ? at.hlo.expand(at.hlo.reshape(grad, {}), slope.sizes())
                            : at.hlo.broadcast_in_dim(grad, slope.sizes(), {0});
  at.give(at.hlo.reshape(slope * Term(at.hlo, factor), at.sizes()));
}

}  // namespace

void add_class_losses(LoweringTable& table) {
  table["aten::nll_loss_forward"] = table["aten::nll_loss2d_forward"] = lower_nll_loss;
  table["aten::nll_loss_backward"] = table["aten::nll_loss2d_backward"] = lower_nll_loss_backward;
  table["aten::multi_margin_loss"] = lower_multi_margin_loss;
  table["aten::multi_margin_loss_backward"] = lower_multi_margin_loss_backward;
  table["aten::multilabel_margin_loss_forward"] = lower_multilabel_margin_loss;
  table["aten::multilabel_margin_loss_backward"] = lower_multilabel_margin_loss_backward;
}

}  // namespace levin::xla
