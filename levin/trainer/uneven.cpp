// Uneven inputs (even_batches = false): no training sample is repeated, so that some ranks may have a batch
// less than others. Follows torch.distributed.algorithms.Join: a rank without a batch takes part in the
// exchange of gradients. Unlike there, a batch counts for as many samples as it has.

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::check_uneven() {
  if (!is_uneven_) return;
  if (joins()) engine_.joinable();
  const bool skips = std::ranges::any_of(
      optimizers_, [](const PreparedOptimizer& optimizer) { return optimizer.frequency() != 1; });
  const std::string_view what = !module_->automatic_optimization ? "manual optimization"
                                : steps_by_closure_  ? "an optimizer that computes losses itself"
                                : skips              ? "an optimizer of a frequency above 1"
                                : engine_.compiles() ? "--compile and gradient accumulation"
                                                     : "";
  LEVIN_CHECK(
      what.empty(), "trainer.even_batches",
      "got even_batches = false with {}, which does not weigh batches by their samples; set "
      "even_batches = true, or leave that out",
      what);
}

std::optional<int64_t> Run::training_size() {
  return joins() ? evaluation_size(*train_loader_) : size_of(*train_loader_);
}

// A rank whose last batch is done has fewer batches done than others. What is left tells where all stand:
// a run on another number of ranks cuts the rest anew.
int64_t Run::training_batches_done() {
  const int64_t own = train_loader_->batches_done();
  if (!joins()) return own;
  const auto most = [this](int64_t count) {
    return engine_.reduce(at::full({1}, count, at::kLong), ReduceOp::kMax).item<int64_t>();
  };
  const std::optional<int64_t> all = training_size();
  return all ? *all - most(train_loader_->size() - own) : most(own);
}

// Batches whose size is not known, since their first tensor is a scalar, count alike.
void Run::weigh_by_samples(const Batch& batch) {
  LEVIN_CHECK(
      sets_weights_.value_or(is_weighed_) == is_weighed_, "trainer.loss_weight",
      "set_loss_weight was called for some batches but not for others; call it for all batches");
  sets_weights_ = is_weighed_;
  if (is_weighed_) return;
  const int64_t size = batch.size();
  const auto samples = static_cast<double>(size > 0 ? samples_ : 1);
  engine_.stepping().set_loss_weight(at::scalar_tensor(samples, at::kDouble));
}

}  // namespace levin::detail
