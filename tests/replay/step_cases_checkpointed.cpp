// Blocks that are computed once more in backward (activation checkpointing).
#include "levin/module/activation_checkpoint.h"
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_checkpointed {

namespace nn = torch::nn;
using at::Tensor;

/// Three layers with dropout of these probabilities behind the first, and in the second, which is computed twice.
StepCase of_dropout(const std::string& name, double before, double within) {
  return {.name = name,
          .step =
              [=](Own& own, const Batch& batch, int64_t) {
                const auto block = [&own, within](const Tensor& x) {
                  const Tensor y = own.part<nn::LinearImpl>("block").forward(x).tanh();
                  return torch::dropout(y, within, own.is_training()) + x;
                };
                Tensor x = own.part<nn::LinearImpl>("in").forward(batch["x"]);
                if (before > 0) x = torch::dropout(x, before, own.is_training());
                x = activation_checkpoint(block, x);
                x = activation_checkpoint(block, x);
                return cross_entropy(own.part<nn::LinearImpl>("out").forward(x), batch);
              },
          .build =
              [](Own& own) {
                own.register_module("in", nn::Linear(6, 8));
                own.register_module("block", nn::Linear(8, 8));
                own.register_module("out", nn::Linear(8, 3));
              }};
}

std::vector<StepCase> all() {
  StepCase with_dropout = of_dropout("CheckpointedDropout", 0.0, 0.3);
  with_dropout.wanted = Wanted::kRefused;
  with_dropout.word = "the host seeds a random generator";
  with_dropout.error_on_xla = "module.checkpoint.random";
  return {replayed(of_dropout("Checkpointed", 0.0, 0.0)),
          replayed(of_dropout("CheckpointedBehindDropout", 0.3, 0.0)), with_dropout};
}

}  // namespace rows_of_step_checkpointed

std::vector<StepCase> checkpointed_steps() { return rows_of_step_checkpointed::all(); }

}  // namespace levin::test
