#include "levin/optim/torch_adapter.h"

#include <ATen/ops/empty.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <typeinfo>
#include <variant>

#include "levin/base/check.h"
#include "levin/optim/optim.h"
#include "levin/optim/torch_state.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {

at::Tensor packed(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string unpacked(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

namespace {

template <class... Classes>
bool is_any_of(const torch::optim::Optimizer* optimizer) {
  return ((dynamic_cast<const Classes*>(optimizer) != nullptr) || ...);
}

/// Keeps state by name: the class' own values for each parameter, as "slots"; its options, which go
/// by position, are saved beside the first parameter. A class that keeps anything else than tensors
/// and numbers is saved as its own archive, by position too.
class TorchAdapter : public Optimizer {
 public:
  /// The owner of the learning rates that count: the parameter groups, or the torch class itself.
  enum class Rates { kOfGroups, kOfTorch };

  TorchAdapter(std::string name, std::shared_ptr<torch::optim::Optimizer> optimizer,
               std::vector<NamedTensor> parameters, std::vector<ParameterGroup> groups, Rates rates)
      : Optimizer(std::move(name), std::move(parameters), std::move(groups)),
        optimizer_(std::move(optimizer)),
        rates_(rates) {
    check_divided();
  }

  void step() override {
    const Closure closure = std::exchange(closure_, nullptr);
    const bool needs_one = is_any_of<torch::optim::LBFGS>(optimizer_.get());
    LEVIN_CHECK(closure != nullptr || !needs_one, "optim.closure",
                "{} computes the loss several times per step, but step() was called without a "
                "closure; call optimizer.step([&] {{ ... return loss; }}) in your own loop, or "
                "with automatic_optimization = false",
                class_name());
    check_parameters();
    for (size_t i = 0; i < groups().size(); ++i) {
      auto& options = optimizer_->param_groups()[i].options();
      if (rates_ == Rates::kOfGroups) options.set_lr(groups()[i].lr);
      groups()[i].lr = options.get_lr();
    }
    optimizer_->step(closure);
  }

  /// LibTorch's own, but for LBFGS, compute it once, as step() of anything else does before.
  bool evaluates_losses() const override {
    const torch::optim::Optimizer* optimizer = optimizer_.get();
    return !is_any_of<torch::optim::Adagrad, torch::optim::Adam, torch::optim::AdamW,
                      torch::optim::RMSprop, torch::optim::SGD>(optimizer);
  }
  void set_closure(Closure closure) override { closure_ = std::move(closure); }

 protected:
  State parameter_states() const override {
    drop_scratch();
    const std::optional<TorchState> kept = take_apart(*optimizer_, parameters());
    LEVIN_CHECK(kept || first_divided() == nullptr, "optim.torch.divided",
                "the state of {} for {}, which is sharded over ranks, holds other things than "
                "tensors and numbers and cannot be saved; use another optimizer",
                class_name(), first_divided()->name);
    State states;
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state;
      state.set("position", static_cast<int64_t>(i));
      if (kept) state.set("slots", in_checkpoint(parameters()[i], kept->parameters[i]));
      if (kept && i == 0) state.set("options", packed(kept->options));
      if (!kept && i == 0) state.set("archive", packed(own_archive()));
      states.set(parameters()[i].name, std::move(state));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    check_positions(name(), parameters(), states);
    const State& first = states.child(parameters().front().name);
    if (first.contains("archive")) return load_archive(unpacked(first.tensor("archive")));
    TorchState kept{unpacked(first.tensor("options")), {}};
    for (const NamedTensor& parameter : parameters()) {
      kept.parameters.push_back(own_slots(parameter, states.child(parameter.name).child("slots")));
    }
    put_together(*optimizer_, kept);
  }

 private:
  std::string class_name() const {
    const torch::optim::Optimizer& optimizer = *optimizer_;
    return c10::demangle(typeid(optimizer).name());
  }

  /// LBFGS keeps undefined tensors between steps, which LibTorch cannot save. It makes them anew.
  void drop_scratch() const {
    if (!is_any_of<torch::optim::LBFGS>(optimizer_.get())) return;
    for (auto& [parameter, state] : optimizer_->state()) {
      static_cast<torch::optim::LBFGSParamState&>(*state).al(std::nullopt);
    }
  }

  const NamedTensor* first_divided() const {
    const auto first = std::ranges::find_if(parameters(), [](const NamedTensor& parameter) {
      return shard::layout_of(parameter.tensor) != nullptr;
    });
    return first == parameters().end() ? nullptr : &*first;
  }

  /// Throws Error "optim.torch.divided".
  void check_divided() const {
    const NamedTensor* first = first_divided();
    if (first == nullptr) return;
    LEVIN_CHECK(!is_any_of<torch::optim::LBFGS>(optimizer_.get()), "optim.torch.divided",
                "{} computes with all parameters as one vector, but {} is sharded over ranks; use "
                "another optimizer, or a strategy that keeps full parameters",
                class_name(), first->name);
    const std::optional<TorchState> kept = take_apart(*optimizer_, parameters());
    for (size_t i = 0; kept && i < parameters().size(); ++i) {
      for (const auto& [slot, value] : kept->parameters[i].values()) {
        const auto* tensor = std::get_if<at::Tensor>(&value);
        const bool fits =
            tensor == nullptr || tensor->dim() == 0 || tensor->sizes() == parameter(i).sizes();
        LEVIN_CHECK(fits, "optim.torch.divided",
                    "{} created its {} of {} before the parameter was sharded; prepare the module "
                    "first and then make the optimizer from its parameters, or pass "
                    "optim::torch_optimizer to prepare()",
                    class_name(), slot, parameters()[i].name);
      }
    }
  }

  /// Tensors of the parameter's sizes are sharded as the parameter is.
  static State in_checkpoint(const NamedTensor& parameter, State slots) {
    State all;
    for (const auto& [slot, value] : slots.values()) {
      const auto* tensor = std::get_if<at::Tensor>(&value);
      const bool is_elementwise = tensor != nullptr && tensor->sizes() == parameter.tensor.sizes();
      all.set(slot, is_elementwise ? shard::state_value(parameter.tensor, *tensor) : value);
    }
    return all;
  }

  static State own_slots(const NamedTensor& parameter, const State& slots) {
    State own;
    for (const auto& [slot, value] : slots.values()) {
      const auto* tensor = std::get_if<at::Tensor>(&value);
      const bool is_number = tensor == nullptr ? !std::holds_alternative<TensorSlice>(value)
                                               : tensor->dim() == 0 && parameter.tensor.dim() > 0;
      if (is_number) {
        own.set(slot, value);
        continue;
      }
      check_shape(slot, parameter, value);
      own.set(slot, shard::own_part(parameter.tensor, value));
    }
    return own;
  }

  std::string own_archive() const {
    torch::serialize::OutputArchive archive;
    optimizer_->save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    return std::move(stream).str();
  }

  void load_archive(const std::string& bytes) {
    LEVIN_CHECK(first_divided() == nullptr, "optim.torch.divided",
                "the state holds {} by position and unsharded, but {} is sharded over ranks; "
                "resume with a strategy that keeps full parameters",
                class_name(), first_divided()->name);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    optimizer_->load(archive);
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  Rates rates_;
  Closure closure_;  ///< closure of the next step
};

OptimizerConfig named(std::string name, const OptimizerConfig& config) {
  auto description = std::get<TorchOptimizerOptions>(config.kind());
  description.class_name = std::move(name);
  return OptimizerConfig(std::move(description));
}

TorchOptimizerOptions description_of(const SgdOptions& o) {
  LEVIN_CHECK(!o.maximize, "optim.options", "torch::optim::SGD has no maximize; negate the loss");
  const auto options = torch::optim::SGDOptions(o.lr)
                           .momentum(o.momentum)
                           .dampening(o.dampening)
                           .weight_decay(o.weight_decay)
                           .nesterov(o.nesterov);
  return std::get<TorchOptimizerOptions>(torch_optimizer<torch::optim::SGD>(options).kind());
}

template <class TorchOptimizer, class TorchOptions, class Options>
TorchOptimizerOptions adam_description(const Options& o) {
  LEVIN_CHECK(!o.maximize, "optim.options", "torch::optim has no maximize; negate the loss");
  const auto options = TorchOptions(o.lr)
                           .betas({o.betas.first, o.betas.second})
                           .eps(o.eps)
                           .weight_decay(o.weight_decay)
                           .amsgrad(o.amsgrad);
  return std::get<TorchOptimizerOptions>(torch_optimizer<TorchOptimizer>(options).kind());
}

TorchOptimizerOptions description_of(const AdamOptions& options) {
  return adam_description<torch::optim::Adam, torch::optim::AdamOptions>(options);
}
TorchOptimizerOptions description_of(const AdamWOptions& options) {
  return adam_description<torch::optim::AdamW, torch::optim::AdamWOptions>(options);
}
TorchOptimizerOptions description_of(const TorchOptimizerOptions& options) { return options; }
template <class Options>
TorchOptimizerOptions description_of(const Options&) {
  TORCH_INTERNAL_ASSERT(false, "it has no class of torch::optim");
}

}  // namespace

void check_positions(const std::string& optimizer, const std::vector<NamedTensor>& parameters,
                     const State& states) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    LEVIN_CHECK(states.contains(parameters[i].name), "optim.state.order",
                "{} keeps its state by position, but {} was not among its parameters when the "
                "state was saved; resume with the same parameters",
                optimizer, parameters[i].name);
    const int64_t position = states.child(parameters[i].name).integer("position");
    LEVIN_CHECK(position == static_cast<int64_t>(i), "optim.state.order",
                "{} keeps its state by position, but {} was number {} when the state was saved "
                "and is number {} now; register the parameters in the same order",
                optimizer, parameters[i].name, position, i);
  }
}

std::shared_ptr<torch::optim::Optimizer> make_torch_class(
    const OptimizerConfig& config, const std::vector<ParameterGroup>& groups,
    const std::function<std::vector<at::Tensor>(const ParameterGroup&)>& members_of) {
  const TorchOptimizerOptions description =
      std::visit([](const auto& options) { return description_of(options); }, config.kind());
  const bool is_decayed_alike = std::ranges::all_of(groups, [&](const ParameterGroup& group) {
    return group.weight_decay == description.weight_decay;
  });
  LEVIN_CHECK(is_decayed_alike || description.set_weight_decay, "optim.group.weight_decay",
              "{} does not support a weight_decay for some parameters only; set no "
              "weight_decay in the groups, and do not call decay_only_weights()",
              config.name());
  std::vector<torch::optim::OptimizerParamGroup> torch_groups;
  for (const auto& group : groups) torch_groups.emplace_back(members_of(group));
  std::shared_ptr<torch::optim::Optimizer> optimizer = description.make(std::move(torch_groups));
  for (size_t i = 0; i < groups.size() && description.set_weight_decay; ++i) {
    description.set_weight_decay(optimizer->param_groups()[i], groups[i].weight_decay);
  }
  return optimizer;
}

std::unique_ptr<Optimizer> make_torch_adapter(const OptimizerConfig& config,
                                              std::vector<NamedTensor> parameters,
                                              std::vector<ParameterGroup> groups) {
  auto optimizer = make_torch_class(config, groups, [&](const ParameterGroup& group) {
    std::vector<at::Tensor> members;
    for (const size_t member : group.members) members.push_back(parameters[member].tensor);
    return members;
  });
  return std::make_unique<TorchAdapter>(config.name(), std::move(optimizer), std::move(parameters),
                                        std::move(groups), TorchAdapter::Rates::kOfGroups);
}

OptimizerConfig rmsprop(RMSpropOptions o) {
  const auto number = [](const char* name, double value, double below) {
    LEVIN_CHECK(value >= 0.0 && value < below, "optim.options",
                "got {} = {} for rmsprop, wanted at least 0{}", name, value,
                name == std::string_view("alpha") ? " and below 1" : "");
  };
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  number("lr", o.lr, kNoLimit);
  number("alpha", o.alpha, 1.0);
  number("eps", o.eps, kNoLimit);
  number("weight_decay", o.weight_decay, kNoLimit);
  number("momentum", o.momentum, kNoLimit);
  return named("rmsprop", torch_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(o.lr)
                                                                     .alpha(o.alpha)
                                                                     .eps(o.eps)
                                                                     .weight_decay(o.weight_decay)
                                                                     .momentum(o.momentum)
                                                                     .centered(o.centered)));
}

OptimizerConfig adagrad(AdagradOptions o) {
  for (const auto& [name, value] : {std::pair("lr", o.lr),
                                    {"lr_decay", o.lr_decay},
                                    {"weight_decay", o.weight_decay},
                                    {"initial_accumulator_value", o.initial_accumulator_value},
                                    {"eps", o.eps}}) {
    LEVIN_CHECK(value >= 0.0, "optim.options", "got {} = {} for adagrad, wanted at least 0", name,
                value);
  }
  return named("adagrad", torch_optimizer<torch::optim::Adagrad>(
                              torch::optim::AdagradOptions(o.lr)
                                  .lr_decay(o.lr_decay)
                                  .weight_decay(o.weight_decay)
                                  .initial_accumulator_value(o.initial_accumulator_value)
                                  .eps(o.eps)));
}

std::unique_ptr<Optimizer> adapt_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                 const std::vector<NamedTensor>& named) {
  std::vector<NamedTensor> parameters;
  std::vector<ParameterGroup> groups;
  for (const auto& torch_group : optimizer->param_groups()) {
    const double lr = torch_group.options().get_lr();
    ParameterGroup& group = groups.emplace_back(ParameterGroup{"*", lr, lr, 0.0, {}});
    for (const at::Tensor& tensor : torch_group.params()) {
      const auto known = std::ranges::find_if(
          named, [&](const NamedTensor& parameter) { return parameter.tensor.is_same(tensor); });
      LEVIN_CHECK(known != named.end(), "optim.torch.parameters",
                  "parameter {} (shape {}) of a torch::optim optimizer belongs to no prepared "
                  "module; prepare its module first",
                  parameters.size(), c10::str(tensor.sizes()));
      group.members.push_back(parameters.size());
      parameters.push_back(*known);
    }
  }
  return std::make_unique<TorchAdapter>("torch", std::move(optimizer), std::move(parameters),
                                        std::move(groups), TorchAdapter::Rates::kOfTorch);
}

}  // namespace levin::optim
