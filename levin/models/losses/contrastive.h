#pragma once
// Losses of text embeddings, which bring matching texts together. They follow
// sentence-transformers.
//
//   const auto embedding = net->forward(batch).embedding.view({pairs, 2, -1});
//   in_batch_negatives(embedding).backward();     // each text's own answer against those of the others

#include <ATen/core/Tensor.h>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::models {

/// Vectors [B, width] of all ranks, in rank order: [B times ranks, width]. Its gradient is the sum over
/// the ranks. All ranks call it with one size.
LEVIN_API at::Tensor gathered(const at::Tensor& rows, const comm::ProcessGroup& group);

struct InBatchNegativesOptions {
  double scale = 20.0;            ///< factor of the similarities: 1 / temperature
  bool normalize = true;          ///< similarity is the cosine; else the product
  comm::ProcessGroup group = {};  ///< ranks whose texts are all candidates; one rank: this batch's
                                  ///< texts alone
};

/// MultipleNegativesRankingLoss: embedding [B, C, width] of an anchor, its positive and C - 2 hard negatives.
/// Each anchor is to choose its positive among those and negatives of the batches of all ranks. The mean
/// over this rank's anchors: gradients that are averaged over ranks are those of one rank with all the
/// texts. Throws Error "models.input" for other sizes.
LEVIN_API at::Tensor in_batch_negatives(const at::Tensor& embedding,
                                        const InBatchNegativesOptions& options = {});

/// CosineSimilarityLoss: the squared difference of the cosine of embedding [B, 2, width] and labels [B].
LEVIN_API at::Tensor cosine_similarity_loss(const at::Tensor& embedding, const at::Tensor& labels);

/// TripletLoss: max(0, |a - p| - |a - n| + margin) of embedding [B, 3, width], Euclidean.
LEVIN_API at::Tensor triplet_loss(const at::Tensor& embedding, double margin = 5.0);

/// [..., width] -> [...]
LEVIN_API at::Tensor cosine(const at::Tensor& a, const at::Tensor& b);

}  // namespace levin::models
