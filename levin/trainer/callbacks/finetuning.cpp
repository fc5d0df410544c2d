#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"
#include "levin/optim/optimizer.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

constexpr const char* kGroupRates = "rates";

bool is_batch_norm(const torch::nn::Module& part) {
  return part.as<torch::nn::BatchNorm1d>() != nullptr ||
         part.as<torch::nn::BatchNorm2d>() != nullptr ||
         part.as<torch::nn::BatchNorm3d>() != nullptr;
}

class Finetuning final : public Callback {
 public:
  explicit Finetuning(FinetuningOptions options);

  std::string state_key() const override { return "finetuning-" + options_.pattern; }
  State state_dict() const override;
  void load_state_dict(const State& state) override { loaded_ = state; }

  void setup(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;

 private:
  /// A parameter group of the frozen part.
  struct Group {
    size_t optimizer, index;
    double lr = 0.0;  ///< once it is trained
  };

  std::vector<NamedTensor> parameters(const Module& module) const;
  void find_groups(Trainer& trainer);
  void unfreeze(const Module& module) const;
  double first_rate(const Trainer& trainer, const Group& group) const;
  void set_rates(const Trainer& trainer) const;

  FinetuningOptions options_;
  std::vector<Group> groups_;
  bool is_trained_ = false;
  State loaded_;  ///< the state of a checkpoint, until the module is there
};

Finetuning::Finetuning(FinetuningOptions options) : options_(std::move(options)) {
  LEVIN_CHECK(!options_.pattern.empty() && options_.unfreeze_at_epoch >= 0, "trainer.finetuning",
              "got pattern = '{}' and unfreeze_at_epoch = {}, wanted a pattern and at least 0",
              options_.pattern, options_.unfreeze_at_epoch);
  LEVIN_CHECK(
      options_.backbone_initial_ratio_lr > 0.0 && options_.backbone_initial_lr.value_or(1.0) > 0.0,
      "trainer.finetuning",
      "got backbone_initial_ratio_lr = {} and backbone_initial_lr = {}, wanted more than 0",
      options_.backbone_initial_ratio_lr, options_.backbone_initial_lr.value_or(1.0));
  if (!options_.lambda_func) options_.lambda_func = [](int64_t) { return 2.0; };
}

std::vector<NamedTensor> Finetuning::parameters(const Module& module) const {
  std::vector<NamedTensor> found;
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (matches(options_.pattern, parameter.name) && parameter.tensor.is_floating_point()) {
      found.push_back(parameter);
    }
  }
  return found;
}

// The module is placed already: a strategy has taken these parameters as ones that are trained.
void Finetuning::setup(Trainer&, Module& module, std::string_view stage) {
  if (stage != "fit") return;
  const std::vector<NamedTensor> frozen = parameters(module);
  LEVIN_CHECK(!frozen.empty(), "trainer.finetuning",
              "the pattern '{}' matches no parameter of {}; set pattern to the names of a part",
              options_.pattern, module.name());
  for (const NamedTensor& parameter : frozen) parameter.tensor.set_requires_grad(false);
  groups_.clear();
  is_trained_ = false;
}

void Finetuning::find_groups(Trainer& trainer) {
  groups_.clear();
  const auto& optimizers = trainer.optimizers();
  for (size_t i = 0; i < optimizers.size(); ++i) {
    optim::Optimizer& optimizer = optimizers[i].optimizer();
    auto& groups = optimizer.groups();
    for (size_t k = 0; k < groups.size(); ++k) {
      const auto is_own = [&](size_t member) {
        return matches(options_.pattern, optimizer.parameters()[member].name);
      };
      const auto own = std::ranges::count_if(groups[k].members, is_own);
      if (own == 0) continue;
      LEVIN_CHECK(
          own == std::ssize(groups[k].members), "trainer.finetuning",
          "{} of the {} parameters in the parameter group '{}' match '{}', so their learning "
          "rate cannot be set alone; give them a group: .group(\"{}\", {{}})",
          own, groups[k].members.size(), groups[k].pattern, options_.pattern, options_.pattern);
      groups[k].follows_schedule = false;
      groups_.push_back({i, k, groups[k].lr});
    }
  }
}

// A later run of the process may train what an earlier one has frozen.
void Finetuning::on_fit_start(Trainer& trainer, Module&) {
  if (groups_.empty()) find_groups(trainer);
  loaded_ = State();
}

void Finetuning::unfreeze(const Module& module) const {
  std::set<std::string> kept;
  for (const auto& part : module.named_modules("", /*include_self=*/true)) {
    if (options_.train_bn || !is_batch_norm(*part.value())) continue;
    for (const auto& parameter : part.value()->named_parameters(/*recurse=*/false)) {
      kept.insert(part.key() + "." + parameter.key());
    }
  }
  for (const NamedTensor& parameter : parameters(module)) {
    if (!kept.contains(parameter.name)) parameter.tensor.set_requires_grad(true);
  }
}

/// The rate of the optimizer's first group that follows its schedule.
double Finetuning::first_rate(const Trainer& trainer, const Group& group) const {
  for (const auto& other : trainer.optimizers()[group.optimizer].optimizer().groups()) {
    if (other.follows_schedule) return other.lr;
  }
  return group.lr;
}

void Finetuning::set_rates(const Trainer& trainer) const {
  for (const Group& group : groups_) {
    trainer.optimizers()[group.optimizer].optimizer().groups()[group.index].lr = group.lr;
  }
}

void Finetuning::on_train_epoch_start(Trainer& trainer, Module& module) {
  const int64_t epoch = trainer.current_epoch();
  if (epoch < options_.unfreeze_at_epoch) return;
  for (Group& group : groups_) {
    const double first = first_rate(trainer, group);
    if (!is_trained_) {
      group.lr = options_.backbone_initial_lr.value_or(first * options_.backbone_initial_ratio_lr);
    } else {
      group.lr *= options_.lambda_func(epoch + 1);
      if (options_.should_align) group.lr = std::min(group.lr, first);
    }
    if (!is_trained_ && group.lr == 0.0) {
      log::warn(
          "finetuning: '{}' is unfrozen with the learning rate 0, since the first group has 0 now "
          "(in "
          "a warm-up); set backbone_initial_lr, or unfreeze it later",
          options_.pattern);
    }
    if (options_.verbose) {
      log::info(
          "finetuning: in epoch {} '{}' has the learning rate {:.12g}, the first group {:.12g}",
          epoch, options_.pattern, group.lr, first);
    }
  }
  if (!is_trained_) unfreeze(module);
  is_trained_ = true;
  set_rates(trainer);
}

State Finetuning::state_dict() const {
  State state, rates;
  for (size_t i = 0; i < groups_.size(); ++i) rates.set(std::to_string(i), groups_[i].lr);
  return std::move(state.set("is_trained", is_trained_).set(kGroupRates, std::move(rates)));
}

void Finetuning::on_load_checkpoint(Trainer& trainer, Module& module, const State&) {
  find_groups(trainer);
  if (loaded_.empty()) return;
  const State& rates = loaded_.child(kGroupRates);
  LEVIN_CHECK(rates.values().size() == groups_.size(), "trainer.finetuning",
              "the checkpoint has rates of {} parameter groups, wanted {}; resume with the same "
              "parameter groups",
              rates.values().size(), groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].lr = rates.number(std::to_string(i));
  is_trained_ = loaded_.boolean("is_trained");
  if (is_trained_) unfreeze(module);
  set_rates(trainer);
}

}  // namespace

std::shared_ptr<Callback> finetuning(FinetuningOptions options) {
  return std::make_shared<Finetuning>(std::move(options));
}

}  // namespace levin
