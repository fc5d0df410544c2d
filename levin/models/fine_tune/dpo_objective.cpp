// Direct preference optimization of a model, against itself without its adapter or as it was.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <map>

#include "levin/base/check.h"
#include "levin/models/fine_tune/objective.h"
#include "levin/models/lora.h"
#include "levin/models/losses/dpo.h"
#include "levin/models/losses/token_loss.h"
#include "levin/module/evaluation_mode.h"
#include "levin/observe/metrics/counted.h"

namespace levin::models {
namespace {

/// A model that is not trained; none where the adapter can be taken off.
std::shared_ptr<Pretrained> reference_of(const Pretrained& net, const FineTuneOptions& options) {
  if (options.reference || net.has_adapter()) return options.reference;
  LEVIN_CHECK(!net.folder().empty(), "models.dpo.reference",
              "dpo needs a reference model, but the model was not loaded from a folder and has no "
              "adapter; set FineTuneOptions::reference, or add an adapter");
  return from_pretrained(net.folder(), {.task = "text-generation", .dtype = net.config().dtype()});
}

class DpoObjective final : public Objective {
 public:
  DpoObjective(std::shared_ptr<Pretrained> net, const FineTuneOptions& options)
      : net_(std::move(net)),
        reference_(reference_of(*net_, options)),
        options_{.beta = options.beta, .label_smoothing = options.label_smoothing} {
    for (const char* name : kRewards)
      means_.emplace_back(metric<metrics::WeightedMean>(std::string("rewards/") + name));
    if (!reference_) return;
    reference_->eval();
    for (auto& parameter : reference_->parameters()) parameter.set_requires_grad(false);
  }

  StepLoss train(const Batch& batch, const comm::ProcessGroup&) override {
    const DpoLoss dpo = loss_of(batch);
    StepLoss step{.loss = dpo.loss, .count = pairs_of(batch)};
    const at::Tensor rewards[] = {dpo.rewards_chosen, dpo.rewards_rejected,
                                  dpo.rewards_accuracies(), dpo.rewards_margins()};
    for (size_t i = 0; i < std::size(rewards); ++i)
      step.values.emplace_back(std::string("rewards/") + kRewards[i], rewards[i].mean());
    return step;
  }

  void evaluate(const Batch& batch) override {
    const DpoLoss dpo = loss_of(batch);
    const at::Tensor pairs = pairs_of(batch);
    loss_->update(dpo.loss, pairs);
    const at::Tensor rewards[] = {dpo.rewards_chosen, dpo.rewards_rejected,
                                  dpo.rewards_accuracies(), dpo.rewards_margins()};
    for (size_t i = 0; i < std::size(rewards); ++i) means_[i]->update(rewards[i].mean(), pairs);
  }

  at::Tensor predict(const Batch& batch) override { return logps(*net_, batch); }

 private:
  static constexpr const char* kRewards[] = {"chosen", "rejected", "accuracies", "margins"};

  /// float32 [B, 2]
  static at::Tensor logps(Pretrained& net, const Batch& batch) {
    return -nll_of_labels(net, with_rows(batch)).sum(1).view({batch.size(), 2});
  }

  static at::Tensor pairs_of(const Batch& batch) {
    return at::scalar_tensor(batch.size(), at::kLong);
  }

  DpoLoss loss_of(const Batch& batch) {
    LEVIN_CHECK(batch.contains("labels") && batch["input_ids"].dim() == 3 &&
                    batch["input_ids"].size(1) == 2,
                "models.input",
                "dpo wants input_ids and labels of [batch, 2, tokens]: chosen, rejected");
    const EvaluationMode no_dropout(
        *net_);  // dropout would make two models of one: TRL's disable_dropout
    return dpo_loss({.policy = logps(*net_, batch), .reference = reference_logps(batch)}, options_);
  }

  at::Tensor reference_logps(const Batch& batch) {
    if (batch.contains("reference_logps")) return batch["reference_logps"];
    const at::NoGradGuard no_grad;
    if (!reference_) {
      const lora::WithoutAdapter as_before(*net_);
      return logps(*net_, batch);
    }
    reference_->to(batch["input_ids"].device());
    return logps(*reference_, batch);
  }

  std::shared_ptr<Pretrained> net_, reference_;
  DpoOptions options_;
  std::shared_ptr<metrics::WeightedMean> loss_ = metric<metrics::WeightedMean>("loss");
  std::vector<std::shared_ptr<metrics::WeightedMean>> means_;
};

}  // namespace

Batch with_rows(const Batch& batch) {
  Batch rows;
  for (const auto& [name, value] : batch) {
    if (value.dim() == 3) rows.set(name, value.flatten(0, 1));
  }
  return rows;
}

std::unique_ptr<Objective> dpo_objective(std::shared_ptr<Pretrained> net,
                                         const FineTuneOptions& options) {
  return std::make_unique<DpoObjective>(std::move(net), options);
}

}  // namespace levin::models
