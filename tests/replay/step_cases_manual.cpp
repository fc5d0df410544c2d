// Steps that optimize by themselves.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_manual {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

StepCase gan(const std::string& name, bool normed) {
  return replayed({.name = name,
                   .step =
                       [](Own& own, const Batch& batch, int64_t) {
                         auto& critic = own.part<nn::LinearImpl>("critic");
                         const Tensor noise = torch::randn({batch.size(), 6});
                         own.optimizer(0).toggle();
                         Tensor loss = F::softplus(-critic.forward(own.net->forward(noise))).mean();
                         own.optimizer(0).zero_grad();
                         own.manual_backward(loss);
                         own.optimizer(0).step();
                         own.optimizer(0).untoggle();
                         own.log("generator", loss);
                         own.optimizer(1).toggle();
                         loss =
                             F::softplus(-critic.forward(batch["x"])).mean() +
                             F::softplus(critic.forward(own.net->forward(noise).detach())).mean();
                         own.optimizer(1).zero_grad();
                         own.manual_backward(loss);
                         own.optimizer(1).step();
                         own.optimizer(1).untoggle();
                         own.log("critic", loss);
                         return loss;
                       },
                   .build =
                       [normed](Own& own) {
                         own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 8)));
                         if (normed) own.net->push_back(nn::BatchNorm1d(8));
                         own.net->push_back(nn::ReLU());
                         own.net->push_back(nn::Linear(8, 6));
                         own.register_module("critic", nn::Linear(6, 1));
                       },
                   .optimizer = [](Own& own) -> OptimizerConfig {
                     return {optim::adam({.lr = 1e-2}).of(own.net),
                             optim::sgd({.lr = 0.1}).of(own.part<nn::LinearImpl>("critic"))};
                   },
                   .is_manual = true});
}

std::vector<StepCase> all() {
  return {
      gan("Gan", false),
      gan("GanWithBatchNorm", true),
      replayed({.name = "TwoStepsInOne",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      Tensor loss;
                      for (int64_t i = 0; i < 2; ++i) {
                        own.optimizer().zero_grad();
                        loss = plain_loss(own, batch);
                        own.manual_backward(loss);
                        own.optimizer().clip_grad_norm(0.5);
                        own.optimizer().step();
                      }
                      return loss;
                    },
                .is_manual = true}),
      replayed({.name = "AccumulatesByItself",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      own.optimizer().zero_grad();
                      Tensor loss;
                      for (int64_t i = 0; i < 2; ++i) {
                        const Tensor x = batch["x"].slice(0, 4 * i, 4 * i + 4);
                        loss = F::cross_entropy(own.net->forward(x),
                                                batch["y"].slice(0, 4 * i, 4 * i + 4));
                        own.manual_backward(loss / 2);
                      }
                      own.optimizer().step();
                      return loss;
                    },
                .is_manual = true}),
      replayed({.name = "SharpnessAware",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      own.optimizer().zero_grad();
                      own.manual_backward(plain_loss(own, batch));
                      Tensors moves;
                      {
                        const at::NoGradGuard no_grad;
                        for (Tensor& parameter : own.parameters()) {
                          moves.push_back(parameter.grad() * 0.05);
                          parameter.add_(moves.back());
                        }
                      }
                      own.optimizer().zero_grad();
                      const Tensor loss = plain_loss(own, batch);
                      own.manual_backward(loss);
                      {
                        const at::NoGradGuard no_grad;
                        for (size_t i = 0; i < moves.size(); ++i)
                          own.parameters()[i].sub_(moves[i]);
                      }
                      own.optimizer().step();
                      return loss;
                    },
                .is_manual = true}),
      {.name = "BackwardBeforeTheTrainers",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             plain_loss(own, batch).backward();
             return plain_loss(own, batch);
           }},
      {.name = "BackwardBeforeTheTrainersThatIsUsed",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             plain_loss(own, batch).backward();
             const Tensor gradient = own.parameters()[0].grad().clone();
             return plain_loss(own, batch) + (own.parameters()[0] * gradient).sum();
           },
       .not_on_xla = "gradients are gone after the optimizer's step, and this one adds to them"},
      replayed({.name = "GradientNoise",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      own.optimizer().zero_grad();
                      const Tensor loss = plain_loss(own, batch);
                      own.manual_backward(loss);
                      for (const Tensor& parameter : own.parameters()) {
                        parameter.grad().add_(torch::randn_like(parameter), 0.01);
                      }
                      own.optimizer().step();
                      return loss;
                    },
                .is_manual = true}),
  };
}

}  // namespace rows_of_step_manual

std::vector<StepCase> manual_steps() { return rows_of_step_manual::all(); }

}  // namespace levin::test
