#include "levin/optim/torch_adapter.h"

#include <ATen/ops/empty.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin::optim {
namespace {

/// The state travels as torch::optim's own archive, whose parameters go by position; the names kept
/// beside it make sure that the positions mean the same.
class TorchAdapter : public Optimizer {
 public:
  /// Whose learning rates count: the groups', or the torch class' own.
  enum class Rates { kOfGroups, kOfTorch };

  TorchAdapter(std::string name, std::shared_ptr<torch::optim::Optimizer> optimizer,
               std::vector<NamedTensor> parameters, std::vector<ParameterGroup> groups, Rates rates)
      : Optimizer(std::move(name), std::move(parameters), std::move(groups)),
        optimizer_(std::move(optimizer)),
        rates_(rates) {}

  void step() override {
    check_parameters();
    for (size_t i = 0; i < groups().size(); ++i) {
      auto& options = optimizer_->param_groups()[i].options();
      if (rates_ == Rates::kOfGroups) options.set_lr(groups()[i].lr);
      groups()[i].lr = options.get_lr();
    }
    optimizer_->step();
  }

 protected:
  State parameter_states() const override {
    torch::serialize::OutputArchive archive;
    optimizer_->save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    const std::string bytes = stream.str();
    at::Tensor packed = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    std::memcpy(packed.mutable_data_ptr(), bytes.data(), bytes.size());
    State states;
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state;
      state.set("position", static_cast<int64_t>(i));
      if (i == 0) state.set("archive", packed);
      states.set(parameters()[i].name, std::move(state));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    for (size_t i = 0; i < parameters().size(); ++i) {
      LEVIN_CHECK(states.contains(parameters()[i].name), "optim.state.order",
                  "{} keeps its state by position, and {} was not among its parameters when it was "
                  "saved",
                  name(), parameters()[i].name);
      const int64_t position = states.child(parameters()[i].name).integer("position");
      LEVIN_CHECK(position == static_cast<int64_t>(i), "optim.state.order",
                  "{} keeps its state by position, and {} was number {} when it was saved, now {}",
                  name(), parameters()[i].name, position, i);
    }
    const at::Tensor packed =
        states.child(parameters().front().name).tensor("archive").contiguous();
    torch::serialize::InputArchive archive;
    archive.load_from(static_cast<const char*>(packed.const_data_ptr()),
                      static_cast<size_t>(packed.numel()));
    optimizer_->load(archive);
  }

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  Rates rates_;
};

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

}  // namespace

std::unique_ptr<Optimizer> make_torch_adapter(const OptimizerConfig& config,
                                              std::vector<NamedTensor> parameters,
                                              std::vector<ParameterGroup> groups) {
  for (const OptimizerConfig::Group& group : config.groups()) {
    LEVIN_CHECK(!group.options.weight_decay.has_value(), "optim.group.weight_decay",
                "{} cannot have a weight_decay for the group '{}' alone; give it in its options",
                config.name(), group.pattern);
  }
  const TorchOptimizerOptions description =
      std::visit([](const auto& options) { return description_of(options); }, config.kind());
  std::vector<torch::optim::OptimizerParamGroup> torch_groups;
  for (const ParameterGroup& group : groups) {
    std::vector<at::Tensor> members;
    for (const size_t member : group.members) members.push_back(parameters[member].tensor);
    torch_groups.emplace_back(std::move(members));
  }
  return std::make_unique<TorchAdapter>(config.name(), description.make(std::move(torch_groups)),
                                        std::move(parameters), std::move(groups),
                                        TorchAdapter::Rates::kOfGroups);
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
      LEVIN_CHECK(
          known != named.end(), "optim.torch.parameters",
          "parameter {} of an optimizer of torch::optim, of shape {}, belongs to no prepared "
          "module; prepare its module before",
          parameters.size(), c10::str(tensor.sizes()));
      group.members.push_back(parameters.size());
      parameters.push_back(*known);
    }
  }
  return std::make_unique<TorchAdapter>("torch", std::move(optimizer), std::move(parameters),
                                        std::move(groups), TorchAdapter::Rates::kOfTorch);
}

}  // namespace levin::optim
