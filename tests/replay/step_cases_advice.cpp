// What refusals advise, done: each is replayed.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_advice {

using at::Tensor;

Tensor masked_loss(Own& own, const Batch& batch, const Tensor& mask) {
  return cross_entropy(own.net->forward(batch["x"] * mask), batch);
}

/// A tensor that is another one in each step, as a mask.
Tensor numbers_of(int64_t step) { return torch::arange(6.0).add(step).sin(); }

void keep_a_mask(Own& own) { own.kept["mask"] = torch::ones({6}); }

std::vector<StepCase> all() {
  return {
      // "keep one, copy_ into it before the step and read a clone() of it in the step"
      replayed({.name = "AMaskCopiedBeforeTheStep",
                .step = [](Own& own, const Batch& batch,
                           int64_t) { return masked_loss(own, batch, own.kept["mask"].clone()); },
                .build = keep_a_mask,
                .before = [](Own& own, Trainer&,
                             int64_t step) { own.kept["mask"].copy_(numbers_of(step)); }}),
      // "give it as an input"
      replayed({.name = "AMaskOfTheBatch",
                .step = [](Own& own, const Batch& batch,
                           int64_t) { return masked_loss(own, batch, batch["mask"]); },
                .data =
                    [] {
                      const Tensor x = torch::arange(48 * 6.0).cos().view({48, 6});
                      return data::tensors({{"x", x},
                                            {"y", x.sum(1).gt(0).to(torch::kLong)},
                                            {"mask", x.gt(0).to(torch::kFloat)}});
                    }}),
      // "write it before the step"
      replayed(
          {.name = "AMaskWrittenBeforeTheStep",
           .step = [](Own& own, const Batch& batch,
                      int64_t) { return masked_loss(own, batch, own.kept["mask"].clone()); },
           .build = keep_a_mask,
           .before = [](Own& own, Trainer&,
                        int64_t step) { own.kept["mask"].data_ptr<float>()[step % 6] += 0.5F; }}),
      // "keep one tensor and copy_ each detached into it"
      replayed({.name = "OneTensorThatEachLossIsCopiedInto",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor loss = plain_loss(own, batch);
                      own.kept["loss"].copy_(loss.detach());
                      return loss;
                    },
                .build = [](Own& own) { own.kept["loss"] = torch::zeros({}); }}),
      // "compute with the tensor itself (torch::where in place of an if)"
      replayed({.name = "AChoiceByWhere",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor loss = plain_loss(own, batch);
                      return torch::where(loss > 1.0, loss * 2, loss);
                    }}),
      // "seed it before the step, and draw by operators (torch::rand)"
      replayed({.name = "SeededBeforeTheStep",
                .step = [](Own& own, const Batch& batch,
                           int64_t) { return masked_loss(own, batch, torch::rand({6}) + 0.5); },
                .before = [](Own&, Trainer&, int64_t step) { torch::manual_seed(step % 4); },
                .not_on_xla = "it draws its own random numbers"}),
  };
}

}  // namespace rows_of_step_advice

std::vector<StepCase> steps_as_advised() { return rows_of_step_advice::all(); }

}  // namespace levin::test
