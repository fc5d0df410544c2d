// Embeddings of texts that belong together.

#include <ATen/ops/scalar_tensor.h>

#include "levin/base/check.h"
#include "levin/models/fine_tune/objective.h"
#include "levin/models/losses/contrastive.h"
#include "levin/observe/metrics/counted.h"
#include "levin/observe/metrics/ranked.h"

namespace levin::models {
namespace {

class EmbeddingObjective final : public Objective {
 public:
  EmbeddingObjective(std::shared_ptr<Pretrained> net, std::string which,
                     const FineTuneOptions& options)
      : net_(std::move(net)), which_(std::move(which)), options_(options) {
    if (which_ == "cosine") {
      spearman_ = metric<metrics::SpearmanCorrCoef>("spearman");
    } else {
      recall_ = metric<metrics::RecallAtK>("recall_at_" + std::to_string(options_.recall_at),
                                           options_.recall_at);
    }
  }

  StepLoss train(const Batch& batch, const comm::ProcessGroup& group) override {
    return loss_of(embedding(batch), batch, group);
  }

  void evaluate(const Batch& batch) override {
    const at::Tensor vectors = embedding(batch);
    // In validation ranks may have other numbers of batches: each is for itself.
    const StepLoss step = loss_of(vectors, batch, {});
    loss_->update(step.loss, step.count);
    if (spearman_)
      spearman_->update(cosine(vectors.select(1, 0), vectors.select(1, 1)),
                        batch["labels"].flatten());
    if (recall_) recall_->update(vectors.select(1, 0), vectors.select(1, 1));
  }

  at::Tensor predict(const Batch& batch) override { return embedding(batch); }

 private:
  /// [B, C, width]
  at::Tensor embedding(const Batch& batch) {
    const at::Tensor& ids = batch["input_ids"];
    LEVIN_CHECK(ids.dim() == 3 && ids.size(1) >= 2, "models.input",
                "got input_ids of sizes {}, wanted [batch, texts, tokens]: anchor, positive, "
                "negatives",
                c10::str(ids.sizes()));
    const at::Tensor vectors = net_->forward(with_rows(batch)).embedding;
    return vectors.view({ids.size(0), ids.size(1), vectors.size(-1)});
  }

  StepLoss loss_of(const at::Tensor& vectors, const Batch& batch, const comm::ProcessGroup& group) {
    StepLoss step{.count = at::scalar_tensor(vectors.size(0), at::kLong)};
    if (which_ == "cosine") {
      step.loss = cosine_similarity_loss(vectors, batch["labels"]);
    } else if (which_ == "triplet") {
      step.loss = triplet_loss(vectors, options_.margin);
    } else {
      step.loss = in_batch_negatives(vectors, {.scale = options_.scale, .group = group});
    }
    return step;
  }

  std::shared_ptr<Pretrained> net_;
  std::string which_;
  FineTuneOptions options_;
  std::shared_ptr<metrics::WeightedMean> loss_ = metric<metrics::WeightedMean>("loss");
  std::shared_ptr<metrics::SpearmanCorrCoef> spearman_;
  std::shared_ptr<metrics::RecallAtK> recall_;
};

}  // namespace

std::unique_ptr<Objective> embedding_objective(std::shared_ptr<Pretrained> net,
                                               const std::string& which,
                                               const FineTuneOptions& options) {
  return std::make_unique<EmbeddingObjective>(std::move(net), which, options);
}

}  // namespace levin::models
