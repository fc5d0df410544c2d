#include "levin/observe/metrics/counted.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/observe/metrics/samples.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {

void Accumulated::reset() {
  sums_.reset();
  rows_.clear();
}

at::Tensor Accumulated::joined(const at::Tensor& sums, const at::Tensor& more) const {
  return sums + more;
}

// Never adds in place to what a state or a copy of the metric holds too.
void Accumulated::add(const at::Tensor& sums) {
  const detail::OrdinaryTensors guard;
  const at::Tensor own = sums.detach();
  // On XLA the first batch's program, with zeros that come from the host, then serves all.
  if (!sums_.defined() && own.is_xla()) {
    sums_ = at::zeros(own.sizes(), own.scalar_type()).to(own.device());
  }
  sums_ = sums_.defined() ? joined(sums_.to(own.device()), own) : own.clone();
}

void Accumulated::keep(const at::Tensor& rows) {
  const detail::OrdinaryTensors guard;
  if (rows.size(0) > 0) rows_.push_back(rows.detach().clone());
}

at::Tensor Accumulated::rows() const {
  const detail::OrdinaryTensors guard;
  if (rows_.empty()) return {};
  std::vector<at::Tensor> parts;
  // On XLA each number of parts would be a program to compile.
  const at::Device device = rows_.front().is_xla() ? at::kCPU : rows_.front().device();
  for (const at::Tensor& part : rows_) parts.push_back(part.to(device));
  return at::cat(parts);
}

void Accumulated::merge(const State& other) {
  for (const auto& [key, value] : other.values()) {
    LEVIN_CHECK(
        key == "sums" || key == "rows", "observe.metric.state",
        "the state of a metric has '{}', wanted sums or rows; resume from a checkpoint of an "
        "epoch's end",
        printable(key));
  }
  if (other.contains("sums")) {
    const at::Tensor& theirs = other.tensor("sums");
    add(sums_.defined() ? theirs.to(sums_.device()) : theirs);
  }
  if (other.contains("rows")) keep(other.tensor("rows"));
}

State Accumulated::state_dict() const {
  State state;
  if (sums_.defined()) state.set("sums", sums_);
  if (!rows_.empty()) state.set("rows", rows());
  return state;
}

void Accumulated::load_state_dict(const State& state) {
  reset();
  merge(state);
}

void WeightedMean::update(const at::Tensor& mean, const at::Tensor& items) {
  const at::Tensor count = items.to(at::kDouble);
  add(at::stack({mean.detach().to(at::kDouble) * count, count}));
}

at::Tensor WeightedMean::compute() const {
  const detail::OrdinaryTensors guard;
  return sums().defined() ? sums()[0] / sums()[1] : nothing();
}

at::Tensor LossPerplexity::compute() const {
  const detail::OrdinaryTensors guard;
  return WeightedMean::compute().exp();
}

// The sums: negative log-likelihoods, tokens, labels out of range.
void Perplexity::update(const at::Tensor& logits, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  check_tokens(logits, labels);
  const at::Tensor scores = logits.flatten(0, 1);
  const Samples samples =
      samples_of(Task::kMulticlass, scores.size(1), ignore_index_, scores, labels.flatten());
  const at::ScalarType dtype = scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor ignored = samples.counted.logical_not();
  const at::Tensor picked = at::log_softmax(scores, 1, dtype)
                                .gather(1, samples.labels.masked_fill(ignored, 0).unsqueeze(1))
                                .squeeze(1)
                                .masked_fill(ignored, 0);
  add(at::stack({-picked.sum(at::kDouble), samples.counted.sum().to(at::kDouble),
                 samples.outside.to(at::kDouble)}));
}

at::Tensor Perplexity::compute() const {
  const detail::OrdinaryTensors guard;
  if (!sums().defined()) return nothing();
  const at::Tensor all = sums().is_xla() ? sums().cpu() : sums();
  check_outside(all[2].to(at::kLong));
  return (all[0] / all[1]).exp();
}

}  // namespace levin::metrics
