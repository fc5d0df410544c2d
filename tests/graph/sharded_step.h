#pragma once
// A sharded training step written by hand with the collectives of levin/comm/operators.h: each unit
// is gathered, computes, and its gradients are reduce-scattered to the rows that a rank updates.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "levin/comm/operators.h"
#include "tests/graph/against_eager.h"

namespace levin::test {

/// Rank 0 has one element more, or several, where they cannot be shared out evenly; the last of many
/// ranks may have none.
inline std::vector<int64_t> cut(int64_t count, int64_t ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  const int64_t share = (count + ranks) / ranks;
  for (int64_t& own : counts) count -= own = std::min(share, count);
  return counts;
}

/// A layer whose parameters lie one behind the other: full in `full`, a part of them in `rows`.
struct ShardedUnit {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<at::Tensor> parameters;
  at::Tensor full, rows, momentum;
  std::vector<int64_t> counts;

  /// The parameters become views of `full`.
  ShardedUnit(const std::shared_ptr<torch::nn::Module>& layer,
              std::function<at::Tensor(const at::Tensor&)> call, const comm::ProcessGroup& group)
      : forward(std::move(call)), parameters(layer->parameters()) {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& parameter : parameters) flat.push_back(parameter.detach().view({-1}));
    full = at::cat(flat);
    counts = cut(full.numel(), group.size());
    const int64_t rank = group.rank();
    int64_t begin = 0;
    for (int64_t i = 0; i < rank; ++i) begin += counts[static_cast<size_t>(i)];
    rows = full.slice(0, begin, begin + counts[static_cast<size_t>(rank)]).clone();
    momentum = at::zeros_like(rows);
    int64_t place = 0;
    for (at::Tensor& parameter : parameters) {
      const at::IntArrayRef sizes = parameter.sizes();
      parameter.set_data(full.slice(0, place, place + parameter.numel()).view(sizes));
      place += parameter.numel();
    }
  }
};

struct ShardedOptions {
  bool gather_again = false;  ///< gather for backward too, as reshard_after_forward does
  comm::Return when = comm::Return::kDone;
};

class ShardedStep {
 public:
  ShardedStep(const comm::ProcessGroup& group, ShardedOptions options)
      : group_(group), options_(options) {}

  std::vector<ShardedUnit>& units() { return units_; }

  /// The mean loss of the rank's batch; the rows are updated.
  at::Tensor operator()(const at::Tensor& batch) {
    std::vector<at::Tensor> inputs, outputs, reduced(units_.size());
    at::Tensor x = batch;
    for (ShardedUnit& unit : units_) {
      gather(unit);
      inputs.push_back(x.detach());
      if (inputs.size() > 1) inputs.back().requires_grad_();
      outputs.push_back(x = unit.forward(inputs.back()));
      if (options_.gather_again) comm::call_release({unit.full});
    }
    const at::Tensor loss = x.square().mean();
    at::Tensor gradient = torch::autograd::grad({loss}, {x})[0];
    for (size_t i = units_.size(); i-- > 0;) {
      if (options_.gather_again) gather(units_[i]);
      std::vector<at::Tensor> wanted = units_[i].parameters;
      if (i > 0) wanted.push_back(inputs[i]);
      std::vector<at::Tensor> gradients = torch::autograd::grad({outputs[i]}, wanted, {gradient});
      if (i > 0) {
        gradient = gradients.back();
        gradients.pop_back();
      }
      reduced[i] = own_part_of(units_[i], gradients);
      comm::call_release({units_[i].full});
    }
    for (size_t i = 0; i < units_.size(); ++i) update(units_[i], reduced[i]);
    return loss.detach();
  }

  /// State across steps.
  std::vector<NamedTensor> state() const {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < units_.size(); ++i) {
      named.push_back({"rows" + std::to_string(i), units_[i].rows});
      named.push_back({"momentum" + std::to_string(i), units_[i].momentum});
    }
    return named;
  }

 private:
  void gather(ShardedUnit& unit) {
    const torch::NoGradGuard no_grad;
    comm::call_release({unit.full});
    comm::call_all_gather(unit.full, unit.rows, unit.counts, group_, options_.when).wait();
  }

  static void update(ShardedUnit& unit, const at::Tensor& gradient) {
    const torch::NoGradGuard no_grad;
    unit.momentum.mul_(0.9).add_(gradient);
    unit.rows.sub_(unit.momentum, 0.1);
  }

  /// Copies the gradients side by side, as the ring of fsdp has them, and reduces them.
  at::Tensor own_part_of(ShardedUnit& unit, const std::vector<at::Tensor>& gradients) {
    const torch::NoGradGuard no_grad;
    const at::Tensor flat = at::empty_like(unit.full), own = at::empty_like(unit.rows);
    comm::call_release({flat});
    comm::call_release({own});
    int64_t place = 0;
    for (const at::Tensor& gradient : gradients) {
      flat.slice(0, place, place + gradient.numel()).view(gradient.sizes()).copy_(gradient);
      place += gradient.numel();
    }
    comm::call_reduce_scatter(own, flat, unit.counts, ReduceOp::kMean, group_, options_.when)
        .wait();
    return own;
  }

  comm::ProcessGroup group_;
  ShardedOptions options_;
  std::vector<ShardedUnit> units_;
};

/// Layers of different sizes.
inline std::unique_ptr<ShardedStep> sharded_perceptron(const comm::ProcessGroup& group,
                                                       ShardedOptions options) {
  torch::manual_seed(1);
  auto step = std::make_unique<ShardedStep>(group, options);
  for (const auto& [in, out] : {std::pair(6, 16), {16, 33}, {33, 16}, {16, 3}}) {
    torch::nn::Linear layer(in, out);
    step->units().emplace_back(
        layer.ptr(), [layer](const at::Tensor& x) mutable { return layer->forward(x).tanh(); },
        group);
  }
  return step;
}

/// Blocks of attention and a perceptron, without dropout, on [batch, time, 32].
inline std::unique_ptr<ShardedStep> sharded_transformer(const comm::ProcessGroup& group,
                                                        ShardedOptions options) {
  torch::manual_seed(2);
  auto step = std::make_unique<ShardedStep>(group, options);
  for (int i = 0; i < 4; ++i) {
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0));
    step->units().emplace_back(
        layer.ptr(), [layer](const at::Tensor& x) mutable { return layer->forward(x); }, group);
  }
  return step;
}

}  // namespace levin::test
