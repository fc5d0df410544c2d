#include "levin/optim/master_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <functional>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/optim/write_mark.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {
namespace {

at::Tensor copy_of(const at::Tensor& parameter) {
  return parameter.detach().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor without_memory(const at::Tensor& parameter) {
  at::Tensor shape = at::empty({0}, parameter.options().dtype(at::kFloat).requires_grad(false));
  shape.unsafeGetTensorImpl()->set_sizes_and_strides(parameter.sizes(), parameter.strides());
  return shape;
}

class MasterWeights final : public Optimizer {
 public:
  MasterWeights(std::vector<NamedTensor> parameters, std::unique_ptr<Optimizer> inner,
                std::vector<shard::ShardedParameter> divided)
      : Optimizer(inner->name(), std::move(parameters), inner->groups()),
        inner_(std::move(inner)),
        divided_(std::move(divided)) {
    for (const NamedTensor& parameter : this->parameters()) marks_.emplace_back(parameter.tensor);
  }

  void step() override {
    const at::NoGradGuard no_grad;
    check_parameters();
    take_up_unfrozen();
    follow();
    for (size_t i = 0; i < parameters().size(); ++i) {
      const at::Tensor& gradient = parameter(i).mutable_grad();
      master(i).mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
    }
    inner_->groups() = groups();
    inner_->step();
    inner_->zero_grad();
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (parameter(i).mutable_grad().defined()) parameter(i).copy_(master(i));
    }
    note_marks();
  }

  bool set_capturable(bool capturable) override { return inner_->set_capturable(capturable); }

  void before_replay() override {
    const at::NoGradGuard no_grad;
    follow();
    inner_->groups() = groups();
    inner_->before_replay();
  }

  Moved moved() const override { return inner_->moved(); }
  void replayed(const Moved& moved) override {
    inner_->replayed(moved);
    note_marks();
  }
  std::vector<size_t> written() const override {
    std::vector<size_t> written;
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!marks_[i].is_of(parameter(i))) written.push_back(i);
    }
    return written;
  }
  void note_written(const std::vector<size_t>& written) override {
    for (const size_t i : written) marks_[i].version = -1;
  }
  int64_t layout() const override { return inner_->layout(); }

  std::vector<NamedTensor> named_state() const override {
    std::vector<NamedTensor> state = inner_->named_state();
    for (const NamedTensor& copy : inner_->parameters()) {
      if (!copy.tensor.requires_grad()) continue;
      state.push_back({"master of " + copy.name, copy.tensor});
    }
    return state;
  }

 protected:
  State parameter_states() const override {
    State states = inner_->state_dict().child("parameters");
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!has_master(i)) continue;
      State state = states.child(parameters()[i].name);
      states.set(parameters()[i].name,
                 std::move(state.set("master", shard::state_value(master(i), master(i).detach()))));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    State inner = inner_->state_dict();
    State rest;
    std::vector<size_t> saved;
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!states.contains(parameters()[i].name)) continue;
      State state = states.child(parameters()[i].name);
      const bool was_trained = state.contains("step") && state.integer("step") > 0;
      if (was_trained || state.contains("master")) {
        check_shape("master", parameters()[i], state.tensor_or_slice("master"));
        saved.push_back(i);
        state.erase("master");
      }
      rest.set(parameters()[i].name, std::move(state));
    }
    const at::NoGradGuard no_grad;
    for (const size_t i : saved) take_up(i);
    inner_->load_state_dict(inner.set("parameters", std::move(rest)));
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (has_master(i)) master(i).copy_(parameter(i));
    }
    for (const size_t i : saved) {
      const State& state = states.child(parameters()[i].name);
      master(i).copy_(shard::own_part(master(i), state.tensor_or_slice("master")));
    }
    note_marks();
  }

 private:
  const at::Tensor& master(size_t index) const { return inner_->parameters()[index].tensor; }
  /// Returns whether the parameter has a copy: one that was frozen all the time has a tensor
  /// without memory instead.
  bool has_master(size_t index) const { return master(index).requires_grad(); }
  void take_up(size_t index) {
    if (has_master(index)) return;
    master(index).set_data(copy_of(parameter(index)));
    master(index).set_requires_grad(true);
    marks_[index] = WriteMark(parameter(index));
  }
  void take_up_unfrozen() {
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!has_master(i) && is_trained(i)) take_up(i);
    }
  }

  void note_marks() {
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!marks_[i].is_of(parameter(i))) marks_[i] = WriteMark(parameter(i));
    }
  }
  /// Somebody else wrote to a parameter: weights were loaded, or averaged over ranks, or it was
  /// given other memory.
  void follow() {
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!has_master(i) || marks_[i].is_of(parameter(i))) continue;
      master(i).copy_(parameter(i));
      // Marked at once: step() is not to copy again, in a recording, what before_replay() has copied.
      marks_[i] = WriteMark(parameter(i));
    }
  }

  std::unique_ptr<Optimizer> inner_;
  std::vector<shard::ShardedParameter> divided_;  ///< copies, as their parameters are
  std::vector<WriteMark> marks_;                  ///< parameters as they were last written here
};

}  // namespace

std::unique_ptr<Optimizer> make_master_weights(const OptimizerConfig& config,
                                               const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> masters;
  std::vector<shard::ShardedParameter> divided;
  for (const auto& [name, parameter] : parameters) {
    const bool is_trained = parameter.requires_grad();
    masters.push_back({name, is_trained ? copy_of(parameter).set_requires_grad(true)
                                        : without_memory(parameter)});
    const auto mesh = shard::mesh_of(parameter);
    if (mesh) divided.emplace_back(masters.back().tensor, *mesh, *shard::layout_of(parameter));
  }
  return std::make_unique<MasterWeights>(
      parameters, build_optimizer(OptimizerConfig(config).master_weights(false), masters),
      std::move(divided));
}

}  // namespace levin::optim
