#include "levin/trainer/callbacks/averaged_tensors.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>

#include <set>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::detail {

void AveragedTensors::begin(std::vector<NamedTensor> tensors) {
  const at::NoGradGuard no_grad;
  tensors_ = std::move(tensors);
  averages_.clear();
  for (const at::Tensor& own : current()) averages_.push_back(own.clone());
  num_updates_ = 0;
  is_swapped_ = false;
}

void AveragedTensors::add(const std::vector<NamedTensor>& tensors) {
  std::set<std::string> known;
  for (const NamedTensor& tensor : tensors_) known.insert(tensor.name);
  for (const NamedTensor& tensor : tensors) {
    if (known.contains(tensor.name)) continue;
    tensors_.push_back(tensor);
    averages_.push_back(shard::own_values(tensor.tensor).detach().clone());
  }
}

void AveragedTensors::clear() {
  averages_.clear();
  tensors_.clear();
  is_swapped_ = false;
}

std::vector<at::Tensor> AveragedTensors::current() const {
  std::vector<at::Tensor> own;
  for (const NamedTensor& tensor : tensors_) {
    own.push_back(shard::own_values(tensor.tensor).detach());
  }
  return own;
}

void AveragedTensors::note_written() const {
  for (const NamedTensor& tensor : tensors_) shard::note_written(tensor.tensor);
}

void AveragedTensors::update(std::optional<double> decay, const AverageFunction& average) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> now = current();
  if (num_updates_ == 0) {
    at::_foreach_copy_(averages_, now);
  } else if (average) {
    for (size_t i = 0; i < now.size(); ++i) {
      const at::Tensor result = average(averages_[i], now[i], num_updates_);
      LEVIN_CHECK(result.defined() && result.sizes().equals(now[i].sizes()),
                  "trainer.weight_averaging",
                  "avg_fn returned {} for the average of {}, wanted a tensor of its sizes",
                  result.defined() ? fmt::format("{} elements", result.numel()) : "no tensor",
                  tensors_[i].name);
      averages_[i].copy_(result);
    }
  } else {
    const double weight = decay ? 1.0 - *decay : 1.0 / static_cast<double>(num_updates_ + 1);
    at::_foreach_lerp_(averages_, now, weight);
  }
  ++num_updates_;
}

void AveragedTensors::swap() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> now = current();
  for (size_t i = 0; i < now.size(); ++i) {
    at::Tensor before = now[i].clone();
    now[i].copy_(averages_[i]);
    averages_[i] = std::move(before);
  }
  note_written();
  is_swapped_ = !is_swapped_;
}

State AveragedTensors::values() const {
  State state;
  const std::vector<at::Tensor> now = current();
  for (size_t i = 0; i < now.size(); ++i) {
    state.set(tensors_[i].name, shard::state_value(tensors_[i].tensor, now[i]));
  }
  return state;
}

State AveragedTensors::averages() const {
  State state;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    state.set(tensors_[i].name, shard::state_value(tensors_[i].tensor, averages_[i]));
  }
  return state;
}

void AveragedTensors::give_averages(State& weights) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    if (!weights.contains(name)) continue;
    weights.set(name, shard::state_value(tensors_[i].tensor, averages_[i]));
  }
}

void AveragedTensors::load_values(const State& values) {
  load(values, current());
  note_written();
}

void AveragedTensors::load_averages(const State& values) { load(values, averages_); }

void AveragedTensors::load(const State& values, const std::vector<at::Tensor>& into) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    LEVIN_CHECK(
        values.contains(name), "trainer.weight_averaging",
        "the checkpoint has no trained values of {}; resume with the module and the options "
        "of the callback that wrote it",
        name);
    const State::Value& saved = values.tensor_or_slice(name);
    const std::string other = shard::difference(tensors_[i].tensor, saved);
    LEVIN_CHECK(other.empty(), "trainer.weight_averaging",
                "the checkpoint's values of {} have a wrong shape: {}", name, other);
    into[i].copy_(shard::own_part(tensors_[i].tensor, saved));
  }
}

}  // namespace levin::detail
