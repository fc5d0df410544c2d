// Tensors that the step keeps, or that share memory: each call does the same.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_kept {

namespace F = torch::nn::functional;
using at::Tensor;

/// A row that keeps something of the step; the loss is the plain one.
StepCase keeping(const std::string& name,
                 const std::function<void(Own&, const Tensor& hidden, const Tensor& loss)>& keep,
                 Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step =
              [keep](Own& own, const Batch& batch, int64_t) {
                const Tensor hidden = own.net->forward(batch["x"]);
                const Tensor loss = cross_entropy(hidden, batch);
                keep(own, hidden, loss);
                return loss;
              },
          .wanted = wanted};
}

void fill(const Tensor& loss, Tensor& place) { place = loss.detach() * 2; }

StepCase manual(const std::string& name, const Step& after_backward) {
  return {.name = name,
          .step =
              [after_backward](Own& own, const Batch& batch, int64_t index) {
                own.optimizer().zero_grad();
                const Tensor loss = plain_loss(own, batch);
                own.manual_backward(loss);
                after_backward(own, batch, index);
                own.optimizer().step();
                return loss;
              },
          .is_manual = true};
}

/// Keeps the gradient of its batch, as this leaf.
StepCase gradient_of(const std::string& name, const std::function<Tensor(const Tensor&)>& leaf) {
  return {.name = name,
          .step =
              [leaf](Own& own, const Batch& batch, int64_t) {
                const Tensor x = leaf(batch["x"]);
                own.optimizer().zero_grad();
                const Tensor loss = cross_entropy(own.net->forward(x), batch);
                own.manual_backward(loss);
                own.kept["gradient"] = x.grad();
                own.optimizer().step();
                return loss;
              },
          .is_manual = true};
}

std::vector<StepCase> all() {
  return {
      keeping(
          "KeepsItsLoss",
          [](Own& own, const Tensor&, const Tensor& loss) { own.kept["loss"] = loss; },
          Wanted::kReplayed),
      keeping(
          "KeepsItsLossDetached",
          [](Own& own, const Tensor&, const Tensor& loss) { own.kept["loss"] = loss.detach(); },
          Wanted::kReplayed),
      keeping("KeepsItsLossCloned",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.kept["loss"] = loss.detach().clone();
              }),
      keeping("KeepsItsLossInDouble",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.kept["loss"] = loss.detach().to(torch::kDouble);
              }),
      keeping("KeepsItsLogits",
              [](Own& own, const Tensor& hidden, const Tensor&) { own.kept["logits"] = hidden; }),
      keeping("KeepsPredictions",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                own.kept["predictions"] = hidden.argmax(1);
              }),
      keeping("KeepsARowOfItsLogits", [](Own& own, const Tensor& hidden,
                                         const Tensor&) { own.kept["row"] = hidden.detach()[2]; }),
      keeping("KeepsTwoNamesOfOne",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                own.kept["a"] = hidden.detach();
                own.kept["b"] = own.kept["a"].view({-1});
              }),
      keeping("KeepsAMapOfTensors",
              [](Own& own, const Tensor& hidden, const Tensor& loss) {
                for (int64_t i = 0; i < 3; ++i)
                  own.kept["class" + std::to_string(i)] = hidden.select(1, i).mean();
                own.kept["loss"] = loss.detach();
              }),
      keeping("KeepsByAnOutParameter",
              [](Own& own, const Tensor&, const Tensor& loss) { fill(loss, own.kept["twice"]); }),
      keeping(
          "KeepsAListThatGrows",
          [](Own& own, const Tensor&, const Tensor& loss) { own.list.push_back(loss.detach()); },
          Wanted::kRefused),
      keeping(
          "KeepsAListOfLogits",
          [](Own& own, const Tensor& hidden, const Tensor&) {
            own.list.push_back(hidden.detach().clone());
          },
          Wanted::kRefused),
      keeping("KeepsTheLastThree",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.list.push_back(loss.detach());
                if (own.list.size() > 3) own.list.erase(own.list.begin());
              }),
      keeping("KeepsARunningSum",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& sum = own.kept["sum"];
                sum = sum.defined() ? sum + loss.detach() : loss.detach();
              }),
      keeping("KeepsASumInPlace",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& sum = own.kept["sum"];
                if (!sum.defined()) sum = torch::zeros({});
                sum.add_(loss.detach());
              }),
      keeping("KeepsTheSmallestLoss",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& best = own.kept["best"];
                best = best.defined() ? torch::minimum(best, loss.detach()) : loss.detach();
              }),
      keeping("KeepsItsWeights",
              [](Own& own, const Tensor&, const Tensor&) {
                own.kept["weights"] = own.parameters()[0].detach();
              }),
      keeping("KeepsACopyOfItsWeights",
              [](Own& own, const Tensor&, const Tensor&) {
                own.kept["weights"] = own.parameters()[0].detach().clone();
              }),
      keeping("KeepsAndLogsItsLoss",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.log("loss", loss);
                own.kept["loss"] = loss.detach();
              }),
      keeping("KeepsAConstant",
              [](Own& own, const Tensor&, const Tensor&) { own.kept["ones"] = torch::ones({3}); }),
      keeping("KeepsConfusion",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                Tensor& counts = own.kept["counts"];
                const Tensor now = torch::one_hot(hidden.argmax(1), 3).sum(0);
                counts = counts.defined() ? counts + now : now;
              }),
      {.name = "KeepsItsBatch",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.kept["x"] = batch["x"];
             return plain_loss(own, batch);
           }},
      {.name = "KeepsTheBatchBefore",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor loss = plain_loss(own, batch);
             if (own.kept["x"].defined())
               loss = loss + own.net->forward(own.kept["x"]).square().mean();
             own.kept["x"] = batch["x"].clone();
             return loss;
           }},
      {.name = "DistilsFromTheStepBefore",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor logits = own.net->forward(batch["x"]);
             Tensor& before = own.kept["before"];
             Tensor loss = cross_entropy(logits, batch);
             if (before.defined()) loss = loss + F::mse_loss(logits, before);
             before = logits.detach();
             return loss;
           }},
      {.name = "KeepsAHiddenState",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor& hidden = own.kept["hidden"];
             if (!hidden.defined()) hidden = torch::zeros({batch.size(), 8});
             const Tensor next =
                 own.part<torch::nn::GRUCellImpl>("cell").forward(batch["x"], hidden);
             hidden = next.detach();
             return cross_entropy(own.part<torch::nn::LinearImpl>("out").forward(next), batch);
           },
       .build =
           [](Own& own) {
             own.register_module("cell", torch::nn::GRUCell(6, 8));
             own.register_module("out", torch::nn::Linear(8, 3));
           }},
      {.name = "KeepsABaselineOfItsLoss",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             Tensor& baseline = own.kept["baseline"];
             baseline = baseline.defined() ? 0.9 * baseline + 0.1 * loss.detach() : loss.detach();
             return loss * (loss.detach() - baseline + 1);
           }},
      {.name = "KeepsABaselineByCopy",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             const Tensor baseline = own.named_buffers()["baseline"];
             const Tensor factor = loss.detach() - baseline + 1;
             baseline.copy_(0.9 * baseline + 0.1 * loss.detach());
             return loss * factor;
           },
       .wanted = Wanted::kReplayed,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
             own.register_buffer("baseline", torch::ones({}));
           }},
      manual("KeepsTheNormOfItsGradients",
             [](Own& own, const Batch&, int64_t) {
               Tensor sum = torch::zeros({});
               for (const Tensor& parameter : own.parameters())
                 sum = sum + parameter.grad().square().sum();
               own.kept["norm"] = sum.sqrt();
               return sum;
             }),
      manual("KeepsACopyOfAGradient",
             [](Own& own, const Batch&, int64_t) {
               return own.kept["gradient"] = own.parameters()[0].grad().clone();
             }),
      manual("KeepsAGradient",
             [](Own& own, const Batch&, int64_t) {
               return own.kept["gradient"] = own.parameters()[0].grad();
             }),
      manual("KeepsTheGradientBefore",
             [](Own& own, const Batch&, int64_t) {
               const Tensor gradient = own.parameters()[0].grad();
               const Tensor now = gradient.clone();
               if (own.kept["g"].defined()) gradient.add_(own.kept["g"], 0.5);
               return own.kept["g"] = now;
             }),
      {.name = "KeepsTheNormOfClipping",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.optimizer().zero_grad();
             const Tensor loss = plain_loss(own, batch);
             own.manual_backward(loss);
             own.numbers["norm"] = torch::nn::utils::clip_grad_norm_(own.parameters(), 0.1);
             own.kept["norm"] = torch::full({}, own.numbers["norm"]);
             own.optimizer().step();
             return loss;
           },
       .is_manual = true},
      gradient_of("GradientOfItsInput",
                  [](const Tensor& x) { return x.detach().requires_grad_(); }),
      gradient_of("GradientOfItsInputItself", [](Tensor x) { return x.requires_grad_(); }),
      {.name = "AttacksByTheGradientOfItsInput",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor x = batch["x"].clone().requires_grad_();
             cross_entropy(own.net->forward(x), batch).backward();
             own.optimizer().zero_grad();
             const Tensor attacked = (x + 0.1 * x.grad().sign()).detach();
             const Tensor loss = cross_entropy(own.net->forward(attacked), batch);
             own.manual_backward(loss);
             own.optimizer().step();
             return loss;
           },
       .is_manual = true},
      {.name = "AttacksInSeveralSteps",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor x = batch["x"].clone();
             for (int64_t i = 0; i < 2; ++i) {
               x = x.detach().requires_grad_();
               const Tensor loss = cross_entropy(own.net->forward(x), batch);
               x = x + 0.05 * torch::autograd::grad({loss}, {x})[0].sign();
             }
             return cross_entropy(own.net->forward(x.detach()), batch);
           },
       .wanted = Wanted::kReplayed},
      {.name = "LossIsAViewOfWhatIsLogged",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor losses =
                 torch::stack({plain_loss(own, batch), own.parameters()[0].norm()});
             own.log("norm", losses[1]);
             own.kept["losses"] = losses.detach();
             return losses[0];
           }},
      {.name = "MemoryBankByATensorsPlace",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor bank = own.named_buffers()["bank"], place = own.named_buffers()["place"];
             const Tensor logits = own.net->forward(batch["x"]);
             const Tensor loss =
                 cross_entropy(logits, batch) + (logits - bank.mean(0)).square().mean();
             bank.index_copy_(0, place, logits.detach().mean(0, true));
             place.add_(1).remainder_(4);
             return loss;
           },
       .wanted = Wanted::kReplayed,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
             own.register_buffer("bank", torch::zeros({4, 3}));
             own.register_buffer("place", torch::zeros({1}, torch::kLong));
           }},
  };
}

}  // namespace rows_of_step_kept

std::vector<StepCase> steps_that_keep() { return rows_of_step_kept::all(); }

}  // namespace levin::test
