#include "levin/models/losses/contrastive.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "levin/base/check.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/comm/operators.h"

namespace levin::models {
namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;

/// sentence-transformers' (torch.nn.functional.normalize).
constexpr double kLeastNorm = 1e-12;
/// torch.cosine_similarity's.
constexpr double kLeastProduct = 1e-8;

std::vector<int64_t> parts_of(const at::Tensor& part, int64_t ranks) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), part.numel());
}

struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const comm::ProcessGroup& ranks) {
    context->saved_data["group"] = comm::NamedGroup::of(ranks);
    const at::Tensor part = rows.contiguous();
    const at::Tensor whole = at::empty({rows.size(0) * ranks.size(), rows.size(1)}, part.options());
    comm::call_all_gather(whole, part, parts_of(part, ranks.size()), ranks);
    return whole;
  }

  static Tensors backward(AutogradContext* context, const Tensors& given) {
    const comm::ProcessGroup ranks = comm::NamedGroup::in(context->saved_data["group"])->group();
    const at::Tensor whole = given[0].contiguous();
    const at::Tensor part =
        at::empty({whole.size(0) / ranks.size(), whole.size(1)}, whole.options());
    comm::call_reduce_scatter(part, whole, parts_of(part, ranks.size()), ReduceOp::kSum, ranks);
    return {part, {}};
  }
};

void check_texts(const at::Tensor& embedding, int64_t least, int64_t most, const char* what) {
  LEVIN_CHECK(embedding.dim() == 3 && embedding.size(1) >= least && embedding.size(1) <= most,
              "models.input", "got embeddings of sizes {}, wanted [batch, {}, width]",
              c10::str(embedding.sizes()), what);
}

at::Tensor unit(const at::Tensor& x) {
  return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(kLeastNorm);
}

}  // namespace

at::Tensor gathered(const at::Tensor& rows, const comm::ProcessGroup& group) {
  return group.size() == 1 ? rows : Gather::apply(rows, group);
}

at::Tensor in_batch_negatives(const at::Tensor& embedding, const InBatchNegativesOptions& options) {
  check_texts(embedding, 2, embedding.numel(), "anchor, positive, negatives");
  LEVIN_CHECK(options.scale > 0, "models.loss.options", "got scale = {}, wanted above 0",
              options.scale);
  const auto vectors = options.normalize ? unit(embedding) : embedding;
  const int64_t count = embedding.size(0), width = embedding.size(2);
  // [ranks times B, width] of each: positives first, so that the label is the place.
  const auto positives = gathered(vectors.select(1, 1), options.group);
  auto scores = at::linear(vectors.select(1, 0), positives);
  if (embedding.size(1) > 2) {
    const auto negatives =
        gathered(vectors.narrow(1, 2, embedding.size(1) - 2).reshape({-1, width}), options.group);
    scores = at::cat({scores, at::linear(vectors.select(1, 0), negatives)}, 1);
  }
  const auto labels =
      at::arange(count, embedding.options().dtype(at::kLong)) + options.group.rank() * count;
  return at::cross_entropy_loss(scores * options.scale, labels);
}

at::Tensor cosine(const at::Tensor& a, const at::Tensor& b) {
  const auto norms =
      a.norm(2, -1).clamp_min(kLeastProduct) * b.norm(2, -1).clamp_min(kLeastProduct);
  return (a * b).sum(-1) / norms;
}

at::Tensor cosine_similarity_loss(const at::Tensor& embedding, const at::Tensor& labels) {
  check_texts(embedding, 2, 2, "2");
  LEVIN_CHECK(labels.numel() == embedding.size(0), "models.labels",
              "got labels of sizes {}, wanted one label per pair", c10::str(labels.sizes()));
  const auto found = cosine(embedding.select(1, 0), embedding.select(1, 1));
  return at::mse_loss(found, labels.flatten().to(found.scalar_type()));
}

at::Tensor triplet_loss(const at::Tensor& embedding, double margin) {
  check_texts(embedding, 3, 3, "3");
  // torch.nn.functional.pairwise_distance adds 1e-6 to the difference.
  const auto distance = [&](int64_t which) {
    return (embedding.select(1, 0) - embedding.select(1, which) + 1e-6).norm(2, -1);
  };
  return at::relu(distance(1) - distance(2) + margin).mean();
}

}  // namespace levin::models
