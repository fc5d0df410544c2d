#include "levin/optim/plain.h"

#include <ATen/core/grad_mode.h>

#include <optional>

#include "levin/base/check.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {
namespace {

class PlainOptimizer final : public Optimizer {
 public:
  PlainOptimizer(std::string name, std::unique_ptr<PlainRule> rule,
                 std::vector<NamedTensor> parameters, std::vector<ParameterGroup> groups)
      : Optimizer(std::move(name), std::move(parameters), std::move(groups)),
        rule_(std::move(rule)),
        states_(this->parameters().size()) {}

  void step() override {
    const at::NoGradGuard no_grad;
    check_parameters();
    for (ParameterGroup& group : groups()) {
      for (const size_t i : group.members) {
        const at::Tensor& gradient = parameter(i).mutable_grad();
        if (!gradient.defined()) continue;
        LEVIN_CHECK(gradient.layout() == at::kStrided, "optim.sparse",
                    "{} supports dense gradients only, but {} got a sparse one; use an embedding "
                    "without sparse gradients",
                    name(), parameters()[i].name);
        PlainState& state = state_of(i);
        state.steps += 1;
        rule_->update(parameter(i), gradient, state, group);
      }
    }
  }

  std::vector<NamedTensor> named_state() const override {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!states_[i]) continue;
      for (const auto& [slot, tensor] : states_[i]->slots) {
        all.push_back({fmt::format("{} of {}", slot, parameters()[i].name), tensor});
      }
    }
    return all;
  }

 protected:
  State parameter_states() const override {
    State states;
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state;
      state.set("step", states_[i] ? states_[i]->steps : int64_t{0});
      if (states_[i]) {
        for (const auto& [slot, tensor] : states_[i]->slots) {
          if (is_elementwise(i, tensor)) {
            state.set(slot, shard::state_value(parameter(i), tensor));
          } else {
            state.set(slot, tensor);
          }
        }
        if (rule_->keeps_product()) state.set("mu_product", states_[i]->mu_product);
      }
      states.set(parameters()[i].name, std::move(state));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    const at::NoGradGuard no_grad;
    std::vector<std::optional<PlainState>> loaded(parameters().size());
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!states.contains(parameters()[i].name)) continue;
      const State& saved = states.child(parameters()[i].name);
      if (saved.integer("step") == 0) continue;
      PlainState& state = loaded[i].emplace();
      state.steps = saved.integer("step");
      state.slots = rule_->slots_of(parameter(i));
      if (rule_->keeps_product()) state.mu_product = saved.number("mu_product");
      for (auto& [slot, tensor] : state.slots) {
        if (is_elementwise(i, tensor)) {
          const State::Value& value = saved.tensor_or_slice(slot);
          check_shape(slot, parameters()[i], value);
          tensor.copy_(shard::own_part(parameter(i), value));
          continue;
        }
        const at::Tensor& value = saved.tensor(slot);
        LEVIN_CHECK(value.sizes() == tensor.sizes(), "optim.state.shape",
                    "{} of {} has a wrong shape: {} instead of {}", slot, parameters()[i].name,
                    c10::str(value.sizes()), c10::str(tensor.sizes()));
        tensor.copy_(value);
      }
    }
    states_ = std::move(loaded);
  }

 private:
  bool is_elementwise(size_t index, const at::Tensor& slot) const {
    return slot.sizes() == parameter(index).sizes();
  }

  PlainState& state_of(size_t index) {
    std::optional<PlainState>& state = states_[index];
    if (!state) state.emplace().slots = rule_->slots_of(parameter(index));
    return *state;
  }

  std::unique_ptr<PlainRule> rule_;
  std::vector<std::optional<PlainState>> states_;  ///< by parameter; unset before its first step
};

}  // namespace

void check_plain(const OptimizerConfig& config, const PlainRule& rule,
                 const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& parameter : parameters) {
    LEVIN_CHECK(!parameter.tensor.is_complex(), "optim.parameters",
                "{} trains real parameters, but {} is complex; use adamw", config.name(),
                parameter.name);
    const bool is_whole = shard::layout_of(parameter.tensor) == nullptr;
    LEVIN_CHECK(
        is_whole || !rule.needs_whole(), "optim.sharded",
        "{} computes with whole matrices, but {} is sharded over ranks; use --strategy ddp, "
        "or adamw or lion, which update shards",
        config.name(), parameter.name);
    rule.check(parameter);
  }
}

std::unique_ptr<Optimizer> make_plain(const OptimizerConfig& config,
                                      std::unique_ptr<PlainRule> rule,
                                      std::vector<NamedTensor> parameters,
                                      std::vector<ParameterGroup> groups) {
  check_plain(config, *rule, parameters);
  return std::make_unique<PlainOptimizer>(config.name(), std::move(rule), std::move(parameters),
                                          std::move(groups));
}

}  // namespace levin::optim
