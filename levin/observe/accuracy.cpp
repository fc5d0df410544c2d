#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <fmt/ranges.h>

#include "levin/base/check.h"
#include "levin/observe/metric.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

std::string shape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_classes(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k) {
  LEVIN_CHECK(scores.sizes() == labels.sizes(), "observe.metric.shape",
              "got scores {} and labels {}, wanted scores [N, C, ...] with labels [N, ...], or "
              "predicted classes of the same shape as labels",
              shape(scores), shape(labels));
  LEVIN_CHECK(c10::isIntegralType(scores.scalar_type(), /*includeBool=*/true),
              "observe.metric.dtype",
              "got scores of dtype {} with the shape of labels, {}; give scores [N, C], or class "
              "indices as integers",
              c10::toString(scores.scalar_type()), shape(labels));
  LEVIN_CHECK(top_k == 1, "observe.metric.top_k",
              "got top_k {} with class indices, wanted scores [N, C]", top_k);
}

void check_scores(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k) {
  bool same = scores.size(0) == labels.size(0);
  for (int64_t dim = 1; dim < labels.dim(); ++dim) same &= scores.size(dim + 1) == labels.size(dim);
  LEVIN_CHECK(same, "observe.metric.shape",
              "got scores {} and labels {}, wanted scores [N, C, ...] with labels [N, ...]",
              shape(scores), shape(labels));
  LEVIN_CHECK(top_k >= 1 && top_k <= scores.size(1), "observe.metric.top_k",
              "got top_k {} with scores {}, wanted 1 to {}", top_k, shape(scores), scores.size(1));
}

// bool, in the shape of labels, or with one more dim of size top_k.
at::Tensor hits(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k) {
  LEVIN_CHECK(c10::isIntegralType(labels.scalar_type(), /*includeBool=*/true),
              "observe.metric.dtype", "got labels of {}, wanted int64",
              c10::toString(labels.scalar_type()));
  if (labels.dim() == 0 || scores.dim() != labels.dim() + 1) {
    check_classes(scores, labels, top_k);
    return scores.eq(labels);
  }
  check_scores(scores, labels, top_k);
  if (top_k == 1) return scores.argmax(1).eq(labels);
  return std::get<1>(scores.topk(top_k, 1)).eq(labels.unsqueeze(1));
}

at::Tensor correct_of(const at::Tensor& scores, const at::Tensor& labels,
                      const AccuracyOptions& options) {
  at::Tensor right = hits(scores, labels, options.top_k);
  if (options.ignore_index) {
    const at::Tensor counts = labels.ne(*options.ignore_index);
    right.logical_and_(right.dim() == labels.dim() ? counts : counts.unsqueeze(1));
  }
  return right.sum();
}

// Never adds in place to what a state or a copy of the metric holds too.
void gather(at::Tensor& into, const at::Tensor& count) {
  // On XLA the first batch's program, with a zero that comes from the host, then serves all.
  if (!into.defined() && count.is_xla()) {
    into = at::scalar_tensor(0, count.scalar_type()).to(count.device());
  }
  if (!into.defined()) {
    into = count.clone();
  } else if (into.use_count() == 1 && into.device() == count.device()) {
    into.add_(count);
  } else {
    into = into.to(count.device()) + count;
  }
}

}  // namespace

at::Tensor accuracy(const at::Tensor& scores, const at::Tensor& labels,
                    const AccuracyOptions& options) {
  const detail::OrdinaryTensors guard;
  const at::Tensor correct = correct_of(scores, labels, options).to(at::kDouble);
  if (!options.ignore_index) return (correct / labels.numel()).to(at::kFloat);
  return (correct / labels.ne(*options.ignore_index).sum()).to(at::kFloat);
}

Accuracy::Accuracy(AccuracyOptions options) : options_(options) {}

void Accuracy::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  gather(correct_, correct_of(scores, labels, options_));
  if (options_.ignore_index) gather(ignored_, labels.eq(*options_.ignore_index).sum());
  total_ += labels.numel();
}

at::Tensor Accuracy::compute() const {
  const detail::OrdinaryTensors guard;
  if (!correct_.defined()) return nothing();
  const at::Tensor correct = correct_.to(at::kDouble);
  return ignored_.defined() ? correct / (total_ - ignored_) : correct / total_;
}

void Accuracy::reset() {
  total_ = 0;
  correct_.reset();
  ignored_.reset();
}

void Accuracy::merge(const State& other) {
  const detail::OrdinaryTensors guard;
  total_ += other.integer("total");
  for (const auto& [key, count] : {std::pair{"correct", &correct_}, {"ignored", &ignored_}}) {
    if (!other.contains(key)) continue;
    const at::Tensor& theirs = other.tensor(key);
    gather(*count, count->defined() ? theirs.to(count->device()) : theirs);
  }
}

State Accuracy::state_dict() const {
  State state;
  state.set("total", total_);
  if (correct_.defined()) state.set("correct", correct_);
  if (ignored_.defined()) state.set("ignored", ignored_);
  return state;
}

void Accuracy::load_state_dict(const State& state) {
  reset();
  merge(state);
}

}  // namespace levin::metrics
