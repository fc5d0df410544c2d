// The classes of torch::optim with state in a file: a step gives the class the pieces as its parameters, with their
// state, and takes the state away again.

#include <ATen/ops/empty.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/optim/offload/offload_rule.h"
#include "levin/optim/torch_adapter.h"
#include "levin/optim/torch_state.h"

namespace levin::optim {
namespace {

using torch::optim::OptimizerParamState;
using NamedValues = std::vector<std::pair<std::string_view, State::Value>>;

/// Calls visit(name, tensor) for each tensor that the class may keep of a parameter.
template <class Visit>
void each_tensor(torch::optim::SGDParamState& state, const Visit& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}
template <class AdamState, class Visit>
  requires requires(AdamState& state) { state.max_exp_avg_sq(); }
void each_tensor(AdamState& state, const Visit& visit) {
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Visit>
void each_tensor(torch::optim::RMSpropParamState& state, const Visit& visit) {
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}
template <class Visit>
void each_tensor(torch::optim::AdagradParamState& state, const Visit& visit) {
  visit("sum", state.sum());
}

/// A class, by what it keeps of a parameter.
class TorchClass {
 public:
  virtual ~TorchClass() = default;
  /// The tensors that it keeps with these options.
  virtual std::vector<std::string_view> slots(
      const torch::optim::OptimizerOptions& options) const = 0;
  virtual bool counts_steps() const = 0;
  virtual std::unique_ptr<OptimizerParamState> make(
      int64_t steps, const std::vector<std::string_view>& names,
      const std::vector<at::Tensor>& tensors) const = 0;
  /// Copies its tensors, if a step has made others.
  virtual void copy_into(OptimizerParamState& state, const std::vector<std::string_view>& names,
                         const std::vector<at::Tensor>& tensors) const = 0;
};

template <class ParamState, class Options, class Slots>
class Known final : public TorchClass {
 public:
  explicit Known(Slots slots) : slots_(std::move(slots)) {}

  std::vector<std::string_view> slots(
      const torch::optim::OptimizerOptions& options) const override {
    return slots_(static_cast<const Options&>(options));
  }
  bool counts_steps() const override {
    return requires(ParamState& state) { state.step(); };
  }
  std::unique_ptr<OptimizerParamState> make(int64_t steps,
                                            const std::vector<std::string_view>& names,
                                            const std::vector<at::Tensor>& tensors) const override {
    auto state = std::make_unique<ParamState>();
    if constexpr (requires { state->step(); }) state->step(steps);
    each_tensor(*state, [&](std::string_view name, at::Tensor& tensor) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) tensor = tensors[i];
      }
    });
    return state;
  }
  void copy_into(OptimizerParamState& state, const std::vector<std::string_view>& names,
                 const std::vector<at::Tensor>& tensors) const override {
    each_tensor(static_cast<ParamState&>(state), [&](std::string_view name, at::Tensor& tensor) {
      for (size_t i = 0; i < names.size(); ++i) {
        const bool is_other = names[i] == name && !tensor.is_same(tensors[i]);
        if (is_other) tensors[i].copy_(tensor);
      }
    });
  }

 private:
  Slots slots_;
};

template <class ParamState, class Options, class Slots>
std::unique_ptr<TorchClass> known(Slots slots) {
  return std::make_unique<Known<ParamState, Options, Slots>>(std::move(slots));
}

template <class ParamState, class Options>
std::unique_ptr<TorchClass> known_adam() {
  return known<ParamState, Options>([](const Options& options) {
    std::vector<std::string_view> names = {"exp_avg", "exp_avg_sq"};
    if (options.amsgrad()) names.push_back("max_exp_avg_sq");
    return names;
  });
}

std::unique_ptr<TorchClass> class_of(const torch::optim::Optimizer& optimizer) {
  namespace classes = torch::optim;
  const auto is = [&]<class Class>() { return typeid(optimizer) == typeid(Class); };
  if (is.template operator()<classes::SGD>()) {
    return known<classes::SGDParamState, classes::SGDOptions>(
        [](const classes::SGDOptions& options) {
          return options.momentum() != 0.0 ? std::vector<std::string_view>{"momentum_buffer"}
                                           : std::vector<std::string_view>();
        });
  }
  if (is.template operator()<classes::Adam>())
    return known_adam<classes::AdamParamState, classes::AdamOptions>();
  if (is.template operator()<classes::AdamW>())
    return known_adam<classes::AdamWParamState, classes::AdamWOptions>();
  if (is.template operator()<classes::RMSprop>()) {
    return known<classes::RMSpropParamState, classes::RMSpropOptions>(
        [](const classes::RMSpropOptions& options) {
          std::vector<std::string_view> names = {"square_avg"};
          if (options.momentum() > 0.0) names.push_back("momentum_buffer");
          if (options.centered()) names.push_back("grad_avg");
          return names;
        });
  }
  if (is.template operator()<classes::Adagrad>()) {
    return known<classes::AdagradParamState, classes::AdagradOptions>(
        [](const classes::AdagradOptions&) { return std::vector<std::string_view>{"sum"}; });
  }
  return nullptr;
}

class TorchOffload final : public OffloadRule {
 public:
  TorchOffload(const OptimizerConfig& config, const std::vector<ParameterGroup>& groups)
      : name_(config.name()),
        optimizer_(make_torch_class(
            config, groups, [](const ParameterGroup&) { return std::vector{at::empty({0})}; })),
        class_(class_of(*optimizer_)) {
    LEVIN_CHECK(
        class_ != nullptr, "optim.offload",
        "{} keeps its state in memory, and --offload does not know the tensors of it; use "
        "sgd, adam, adamw, nadam, radam, lion, adafactor, muon, rmsprop or adagrad, or leave "
        "--offload out",
        config.name());
    optimizer_->state().clear();
    names_ = class_->slots(optimizer_->defaults());
    const auto* adagrad = dynamic_cast<torch::optim::AdagradOptions*>(&optimizer_->defaults());
    if (adagrad != nullptr) fill_ = adagrad->initial_accumulator_value();
    begins_with_state_ = adagrad != nullptr;
  }

  std::vector<SlotShape> slots_of(const at::Tensor& like) const override {
    std::vector<SlotShape> slots;
    for (const std::string_view name : names_) slots.push_back({name, like, fill_});
    return slots;
  }
  bool cuts(at::ScalarType type) const override {
    return type == at::kFloat || type == at::kDouble;
  }
  bool begins_with_state() const override { return begins_with_state_; }
  bool takes_frozen() const override { return begins_with_state_; }

  void update(std::vector<UpdatePiece>& pieces, ParameterGroup& group, size_t number) override {
    for (torch::optim::OptimizerParamGroup& each : optimizer_->param_groups())
      each.params().clear();
    torch::optim::OptimizerParamGroup& own = optimizer_->param_groups()[number];
    own.options().set_lr(group.lr);
    auto& states = optimizer_->state();
    for (UpdatePiece& piece : pieces) {
      own.params().push_back(piece.values);
      piece.values.mutable_grad() = piece.gradient;
      if (!piece.counts.has_state) continue;
      states[piece.values.unsafeGetTensorImpl()] =
          class_->make(piece.counts.steps - 1, names_, piece.slots);
    }
    optimizer_->step();
    for (UpdatePiece& piece : pieces) {
      const auto place = states.find(piece.values.unsafeGetTensorImpl());
      if (place != states.end()) class_->copy_into(*place->second, names_, piece.slots);
    }
    states.clear();
    own.params().clear();
  }

  State to_state(size_t parameter, const SlotCounts& counts,
                 const NamedValues& slots) const override {
    State values;
    for (const auto& [name, value] : slots) values.set(name, value);
    if (counts.has_state && class_->counts_steps()) values.set("step", counts.steps);
    State state;
    state.set("position", static_cast<int64_t>(parameter));
    return std::move(state.set("slots", counts.has_state ? std::move(values) : State()));
  }

  std::optional<SavedSlots> of_state(const State& state,
                                     const std::vector<SlotShape>& slots) const override {
    const State& values = state.child("slots");
    if (values.empty()) return std::nullopt;
    SavedSlots saved{{.has_state = true}, {}};
    if (class_->counts_steps()) saved.counts.steps = values.integer("step");
    for (const SlotShape& slot : slots) saved.slots.push_back(values.tensor_or_slice(slot.name));
    return saved;
  }

  void add_common(const std::vector<NamedTensor>& parameters,
                  const std::vector<ParameterGroup>& groups, State& first) override {
    with_parameters(parameters, groups, [&] {
      first.set("options", packed(take_apart(*optimizer_, parameters)->options));
    });
  }

  void check_states(const std::vector<NamedTensor>& parameters,
                    const State& states) const override {
    check_positions(name_, parameters, states);
  }

  void load_common(const std::vector<NamedTensor>& parameters,
                   const std::vector<ParameterGroup>& groups, const State& first) override {
    LEVIN_CHECK(first.contains("options"), "optim.offload",
                "the state holds {} by position as one archive, which --offload cannot take apart; "
                "leave --offload out",
                name_);
    with_parameters(parameters, groups, [&] {
      put_together(*optimizer_, {unpacked(first.tensor("options")), {}});
      optimizer_->state().clear();
    });
    names_ = class_->slots(optimizer_->defaults());
  }

 private:
  /// The class' archive has its groups by the parameters.
  template <class Call>
  void with_parameters(const std::vector<NamedTensor>& parameters,
                       const std::vector<ParameterGroup>& groups, const Call& call) {
    for (size_t i = 0; i < groups.size(); ++i) {
      std::vector<at::Tensor>& own = optimizer_->param_groups()[i].params();
      own.clear();
      for (const size_t member : groups[i].members) own.push_back(parameters[member].tensor);
    }
    call();
    for (auto& group : optimizer_->param_groups()) group.params().clear();
  }

  std::string name_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<TorchClass> class_;
  std::vector<std::string_view> names_;
  double fill_ = 0.0;
  bool begins_with_state_ = false;
};

}  // namespace

std::unique_ptr<OffloadRule> make_torch_offload_rule(const OptimizerConfig& config,
                                                     const std::vector<ParameterGroup>& groups) {
  return std::make_unique<TorchOffload>(config, groups);
}

}  // namespace levin::optim
