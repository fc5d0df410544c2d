// The loss of labels: language models, classification of texts and tokens, answers.

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <optional>

#include "levin/models/fine_tune/objective.h"
#include "levin/models/losses/chunked_nll.h"
#include "levin/observe/metric.h"
#include "levin/observe/metrics/counted.h"

namespace levin::models {
namespace {

/// "B-PER", "I-PER", "O", by label, where the config names all labels so.
std::vector<std::string> entity_names(const Config& config) {
  std::vector<std::string> names = config.label_names();
  const bool are_entities = std::ranges::all_of(names, [](const std::string& name) {
    return name == "O" || name.starts_with("B-") || name.starts_with("I-");
  });
  return are_entities ? names : std::vector<std::string>();
}

class LabelObjective final : public Objective {
 public:
  explicit LabelObjective(std::shared_ptr<Pretrained> net) : net_(std::move(net)) {
    const std::string task = net_->task();
    if (task == "text-generation" || task == "fill-mask") {
      perplexity_ = metric<metrics::LossPerplexity>("perplexity");
    } else if (task == "token-classification") {
      accuracy_ = metric<metrics::Accuracy>("accuracy",
                                            metrics::AccuracyOptions{.ignore_index = kNotCounted});
      if (auto names = entity_names(net_->config()); !names.empty())
        entities_ = metric<metrics::EntityF1>("f1", std::move(names));
    } else if (task == "text-classification") {
      add_classification();
    }
  }

  StepLoss train(const Batch& batch, const comm::ProcessGroup&) override {
    const Output output = net_->forward(batch, {.logits = false});
    return {.loss = output.loss, .count = output.count};
  }

  void evaluate(const Batch& batch) override {
    const bool needs_logits = accuracy_ || spearman_;
    const Output output = net_->forward(batch, {.logits = needs_logits});
    loss_->update(output.loss, output.count);
    if (perplexity_) perplexity_->update(output.loss, output.count);
    if (!needs_logits) return;
    const at::Tensor& labels = batch["labels"];
    if (spearman_) return spearman_->update(output.logits.flatten(), labels.flatten());
    if (labels.is_floating_point()) return;  // several labels a text
    const at::Tensor classes = output.logits.argmax(-1);
    accuracy_->update(classes, labels);
    if (f1_) f1_->update(classes, labels);
    if (entities_) entities_->update(classes, labels);
  }

  at::Tensor predict(const Batch& batch) override { return net_->forward(batch).logits; }

 private:
  void add_classification() {
    const int64_t labels = net_->config().num_labels();
    const std::string problem = net_->config().text("problem_type");
    if (labels == 1) {
      spearman_ = metric<metrics::SpearmanCorrCoef>("spearman");
    } else if (problem.empty() || problem == "single_label_classification") {
      accuracy_ = metric<metrics::Accuracy>("accuracy",
                                            metrics::AccuracyOptions{.ignore_index = kNotCounted});
      f1_ = metric<metrics::F1Score>(
          "f1", labels == 2
                    ? metrics::ClassificationOptions{.task = "binary", .ignore_index = kNotCounted}
                    : metrics::ClassificationOptions{
                          .num_classes = labels, .average = "macro", .ignore_index = kNotCounted});
    }
  }

  std::shared_ptr<Pretrained> net_;
  std::shared_ptr<metrics::WeightedMean> loss_ = metric<metrics::WeightedMean>("loss");
  std::shared_ptr<metrics::LossPerplexity> perplexity_;
  std::shared_ptr<metrics::Accuracy> accuracy_;
  std::shared_ptr<metrics::F1Score> f1_;
  std::shared_ptr<metrics::EntityF1> entities_;
  std::shared_ptr<metrics::SpearmanCorrCoef> spearman_;
};

}  // namespace

std::unique_ptr<Objective> label_objective(std::shared_ptr<Pretrained> net) {
  return std::make_unique<LabelObjective>(std::move(net));
}

}  // namespace levin::models
