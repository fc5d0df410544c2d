#include "levin/observe/metrics/counted.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/stack.h>

#include "levin/base/check.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

/// Classes of the highest scores, where they are not classes already.
at::Tensor classes_of(const at::Tensor& scores, const at::Tensor& labels) {
  const bool are_classes = scores.dim() == labels.dim() && !scores.is_floating_point();
  const at::Tensor classes = are_classes ? scores : scores.argmax(-1);
  LEVIN_CHECK(classes.sizes() == labels.sizes(), "observe.metric.shape",
              "got scores {} and labels {}, wanted scores [.., C] with labels [..], or predicted "
              "classes of the same shape as labels",
              c10::str(scores.sizes()), c10::str(labels.sizes()));
  return classes;
}

/// Correct, found and wanted ones -> 2 correct / (found + wanted), 0 where there are none.
at::Tensor f1_of(const at::Tensor& sums) {
  const at::Tensor both = sums.select(0, 1) + sums.select(0, 2);
  return 2 * sums.select(0, 0) / both.clamp_min(1);
}

}  // namespace

void Counted::add(const at::Tensor& sums) {
  const detail::OrdinaryTensors guard;
  const at::Tensor own = sums.detach().to(at::kDouble);
  sums_ = sums_.defined() ? sums_.to(own.device()) + own : own.clone();
}

void Counted::merge(const State& other) {
  if (other.contains("sums")) add(other.tensor("sums"));
}

State Counted::state_dict() const {
  State state;
  if (sums_.defined()) state.set("sums", sums_);
  return state;
}

void Counted::load_state_dict(const State& state) {
  reset();
  merge(state);
}

F1::F1(F1Options options) : options_(std::move(options)) {
  const bool is_binary = options_.average == "binary";
  LEVIN_CHECK(is_binary || options_.average == "macro", "observe.metric.options",
              "got average '{}', wanted macro or binary", options_.average);
  LEVIN_CHECK(options_.num_classes >= (is_binary ? 2 : 1), "observe.metric.options",
              "got num_classes = {}, wanted at least {}", options_.num_classes, is_binary ? 2 : 1);
}

void F1::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  const at::Tensor classes = classes_of(scores, labels).flatten();
  const at::Tensor wanted = labels.flatten();
  const at::Tensor counts = wanted.ne(options_.ignore_index);
  const int64_t others = options_.num_classes;  // a place for what does not count
  const auto occurrences = [&](const at::Tensor& of, const at::Tensor& where) {
    return of.masked_fill(where.logical_not(), others)
        .bincount({}, others + 1)
        .narrow(0, 0, others);
  };
  add(at::stack({occurrences(wanted, counts.logical_and(classes == wanted)),
                 occurrences(classes, counts), occurrences(wanted, counts)}));
}

at::Tensor F1::compute() const {
  const detail::OrdinaryTensors guard;
  if (is_empty()) return nothing();
  const at::Tensor each = f1_of(sums());
  if (options_.average == "binary") return each[1].clone();
  const at::Tensor occurs = (sums().select(0, 1) + sums().select(0, 2)) > 0;
  return (each * occurs).sum() / occurs.sum();
}

void WeightedMean::update(const at::Tensor& mean, const at::Tensor& items) {
  const at::Tensor count = items.to(at::kDouble);
  add(at::stack({mean.detach().to(at::kDouble) * count, count}));
}

at::Tensor WeightedMean::compute() const {
  const detail::OrdinaryTensors guard;
  return is_empty() ? nothing() : sums()[0] / sums()[1];
}

at::Tensor Perplexity::compute() const {
  const detail::OrdinaryTensors guard;
  return WeightedMean::compute().exp();
}

}  // namespace levin::metrics
