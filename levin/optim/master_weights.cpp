#include "levin/optim/master_weights.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <utility>
#include <vector>

#include "levin/base/check.h"

namespace levin::optim {
namespace {

class MasterWeights final : public Optimizer {
 public:
  MasterWeights(std::vector<NamedTensor> parameters, std::unique_ptr<Optimizer> inner)
      : Optimizer(inner->name(), std::move(parameters), inner->groups()), inner_(std::move(inner)) {
    for (size_t i = 0; i < this->parameters().size(); ++i) versions_.push_back(version(i));
  }

  void step() override {
    const at::NoGradGuard no_grad;
    follow();
    for (size_t i = 0; i < parameters().size(); ++i) {
      const at::Tensor& gradient = parameter(i).grad();
      master(i).mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
    }
    inner_->groups() = groups();
    inner_->step();
    inner_->zero_grad();
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (parameter(i).grad().defined()) parameter(i).copy_(master(i));
    }
    note_versions();
  }

  bool set_capturable(bool capturable) override { return inner_->set_capturable(capturable); }

  std::function<void()> host_part() override {
    return [this, inner = inner_->host_part()] {
      const at::NoGradGuard no_grad;
      follow();
      inner_->groups() = groups();
      inner();
    };
  }

  void replayed() override { note_versions(); }
  int64_t layout() const override { return inner_->layout(); }

  std::vector<NamedTensor> named_state() const override {
    std::vector<NamedTensor> state = inner_->named_state();
    for (const NamedTensor& copy : inner_->parameters()) {
      state.push_back({"master of " + copy.name, copy.tensor});
    }
    return state;
  }

 protected:
  State parameter_states() const override {
    State states = inner_->state_dict().child("parameters");
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state = states.child(parameters()[i].name);
      states.set(parameters()[i].name, std::move(state.set("master", master(i).detach())));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    State inner = inner_->state_dict();
    State rest;
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state = states.child(parameters()[i].name);
      const at::Tensor saved = state.tensor("master");
      LEVIN_CHECK(saved.sizes() == master(i).sizes(), "optim.state.shape",
                  "the master weights of {} have shape {}, wanted {}", parameters()[i].name,
                  c10::str(saved.sizes()), c10::str(master(i).sizes()));
      state.erase("master");
      rest.set(parameters()[i].name, std::move(state));
    }
    inner_->load_state_dict(inner.set("parameters", std::move(rest)));
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters().size(); ++i) {
      master(i).copy_(states.child(parameters()[i].name).tensor("master"));
    }
    note_versions();
  }

 private:
  const at::Tensor& master(size_t index) const { return inner_->parameters()[index].tensor; }
  int64_t version(size_t index) const { return parameter(index)._version(); }
  void note_versions() {
    for (size_t i = 0; i < parameters().size(); ++i) versions_[i] = version(i);
  }
  /// Somebody else wrote to a parameter: weights were loaded, or averaged over ranks.
  void follow() {
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (version(i) != versions_[i]) master(i).copy_(parameter(i));
    }
  }

  std::unique_ptr<Optimizer> inner_;
  std::vector<int64_t> versions_;  ///< of the parameters as they were last written here
};

}  // namespace

std::unique_ptr<Optimizer> make_master_weights(const OptimizerConfig& config,
                                               const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> masters;
  for (const NamedTensor& parameter : parameters) {
    at::Tensor copy = parameter.tensor.detach().to(at::kFloat, /*non_blocking=*/false,
                                                   /*copy=*/true);
    masters.push_back({parameter.name, copy.set_requires_grad(true)});
  }
  return std::make_unique<MasterWeights>(
      parameters, build_optimizer(OptimizerConfig(config).master_weights(false), masters));
}

}  // namespace levin::optim
