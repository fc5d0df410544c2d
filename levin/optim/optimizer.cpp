#include "levin/optim/optimizer.h"

#include <c10/util/Exception.h>

#include <set>

#include "levin/base/check.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {

Optimizer::Optimizer(std::string name, std::vector<NamedTensor> parameters,
                     std::vector<ParameterGroup> groups)
    : name_(std::move(name)), parameters_(std::move(parameters)), groups_(std::move(groups)) {
  for (const NamedTensor& parameter : parameters_) layouts_.emplace_back(parameter.tensor);
}

Optimizer::~Optimizer() = default;

// NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it
void Optimizer::set_closure(Closure) {
  TORCH_INTERNAL_ASSERT(false, name_, " computes no loss in its step");
}

bool Optimizer::set_waves(std::vector<int64_t>) { return false; }

bool Optimizer::set_capturable(bool) { return false; }

void Optimizer::replayed(const Moved&) {}

Moved Optimizer::moved() const {
  LEVIN_CHECK(false, "optim.capturable",
              "{} is not capturable; call set_capturable(true), or step() if that returns false",
              name());
}

void Optimizer::step_wave(int64_t) { step(); }

void Optimizer::check_parameters() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const Layout& built = layouts_[i];
    if (built.is_of(tensor)) continue;
    const auto shown = [](at::ScalarType type, at::IntArrayRef sizes, at::Device device) {
      return fmt::format("{} {} on {}", c10::toString(type), c10::str(sizes), device.str());
    };
    LEVIN_FAIL("optim.parameters",
               "parameter {} is {}, but it was {} when {} was built for it; convert the module "
               "before you prepare its optimizer, or prepare both again",
               name, shown(tensor.scalar_type(), tensor.sizes(), tensor.device()),
               shown(built.type, built.sizes, built.device), name_);
  }
}

void Optimizer::check_shape(std::string_view slot, const NamedTensor& parameter,
                            const State::Value& saved) {
  const std::string other = shard::difference(parameter.tensor, saved);
  LEVIN_CHECK(other.empty(), "optim.state.shape", "{} of {} has a wrong shape: {}", slot,
              parameter.name, other);
}

void Optimizer::zero_grad() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

State Optimizer::state_dict() const {
  State groups;
  for (size_t i = 0; i < groups_.size(); ++i) {
    State group;
    group.set("pattern", groups_[i].pattern);
    group.set("lr", groups_[i].lr).set("initial_lr", groups_[i].initial_lr);
    groups.set(std::to_string(i), std::move(group));
  }
  State state;
  state.set("name", name_).set("groups", std::move(groups));
  return std::move(state.set("parameters", parameter_states()));
}

void Optimizer::load_state_dict(const State& state) {
  LEVIN_CHECK(state.text("name") == name_, "optim.state.kind",
              "the state is of optimizer '{}', wanted '{}'; resume with the same optimizer",
              state.text("name"), name_);
  const State& saved = state.child("parameters");
  std::string missing, unexpected;
  std::set<std::string> wanted;
  for (const NamedTensor& parameter : parameters_) {
    wanted.insert(parameter.name);
    const bool is_frozen = !parameter.tensor.requires_grad();
    if (!is_frozen && !saved.contains(parameter.name)) missing += " " + parameter.name;
  }
  for (const auto& [name, value] : saved.values()) {
    if (!wanted.contains(name)) unexpected += " " + name;
  }
  LEVIN_CHECK(missing.empty() && unexpected.empty(), "optim.state.names",
              "the state is of other parameters: it lacks [{}] and has the unexpected [{}]; resume "
              "with the same module",
              missing, unexpected);
  const State& groups = state.child("groups");
  LEVIN_CHECK(groups.values().size() == groups_.size(), "optim.state.groups",
              "the state has {} parameter groups, wanted {}; resume with the same parameter groups",
              groups.values().size(), groups_.size());
  load_parameter_states(saved);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const State& group = groups.child(std::to_string(i));
    groups_[i].lr = group.number("lr");
    groups_[i].initial_lr = group.number("initial_lr");
  }
}

}  // namespace levin::optim
