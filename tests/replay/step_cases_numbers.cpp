// Numbers that levin hands out, and batches: names, order, strides and flags of their fields.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_numbers {

namespace F = torch::nn::functional;
using at::Tensor;

/// The loss is multiplied by a number of the host.
StepCase weighted(const std::string& name, const std::function<double(Own&, int64_t index)>& weight,
                  Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step = [weight](Own& own, const Batch& batch,
                           int64_t index) { return plain_loss(own, batch) * weight(own, index); },
          .wanted = wanted,
          .epochs = wanted == Wanted::kReplayed ? 6 : 3};
}

/// The loss is squared in some steps.
StepCase branching(const std::string& name,
                   const std::function<bool(Own&, int64_t index)>& condition) {
  return {.name = name, .step = [condition](Own& own, const Batch& batch, int64_t index) {
            const Tensor loss = plain_loss(own, batch);
            return condition(own, index) ? loss.square() : loss;
          }};
}

/// A GAN on x; whether the generator is trained in a step is said by the row.
StepCase gan(const std::string& name,
             const std::function<bool(Own&, int64_t index)>& trains_generator) {
  return {.name = name,
          .step =
              [trains_generator](Own& own, const Batch& batch, int64_t index) {
                auto& generator = own.part<torch::nn::LinearImpl>("generator");
                auto& critic = own.part<torch::nn::LinearImpl>("critic");
                const Tensor noise = torch::randn({batch.size(), 4});
                own.optimizer(1).zero_grad();
                const Tensor real = critic.forward(batch["x"]);
                const Tensor fake = critic.forward(generator.forward(noise).tanh().detach());
                Tensor loss = F::softplus(-real).mean() + F::softplus(fake).mean();
                own.manual_backward(loss);
                own.optimizer(1).step();
                own.log("critic", loss);
                if (trains_generator(own, index)) {
                  own.optimizer(0).zero_grad();
                  loss = F::softplus(-critic.forward(generator.forward(noise).tanh())).mean();
                  own.manual_backward(loss);
                  own.optimizer(0).step();
                }
                return loss;
              },
          .build =
              [](Own& own) {
                own.register_module("generator", torch::nn::Linear(4, 6));
                own.register_module("critic", torch::nn::Linear(6, 1));
              },
          .optimizer = [](Own& own) -> OptimizerConfig {
            return {optim::adam({.lr = 1e-2}).of(own.part<torch::nn::LinearImpl>("generator")),
                    optim::adam({.lr = 1e-2}).of(own.part<torch::nn::LinearImpl>("critic"))};
          },
          .is_manual = true};
}

OptimizerConfig scheduled(Own&) {
  return optim::sgd({.lr = 0.1}).schedule({"halves", [](int64_t step, int64_t) {
                                             return step < 8 ? 1.0 : 0.5;
                                           }});
}

std::vector<StepCase> with_counts() {
  return {
      gan("GanEveryFifthBatch", [](Own&, int64_t i) { return i % 5 == 0; }),
      gan("GanEverySecondBatch", [](Own&, int64_t i) { return i % 2 == 0; }),
      gan("GanAfterThreeBatches", [](Own&, int64_t i) { return i >= 3; }),
      gan("GanEveryThirdStep", [](Own& own, int64_t) { return own.global_step() % 3 == 0; }),
      gan("GanFromTheSecondEpoch", [](Own& own, int64_t) { return own.current_epoch() >= 1; }),
      gan("GanByTheOptimizersRate",
          [](Own& own, int64_t) { return own.optimizer(0).learning_rate() > 0; }),
      branching("FirstBatch", [](Own&, int64_t i) { return i == 0; }),
      branching("FourthBatch", [](Own&, int64_t i) { return i == 3; }),
      branching("LastBatch", [](Own&, int64_t i) { return i == 5; }),
      branching("FirstThreeBatches", [](Own&, int64_t i) { return i < 3; }),
      branching("OddBatches", [](Own&, int64_t i) { return i % 2 == 1; }),
      branching("EveryThirdBatch", [](Own&, int64_t i) { return i % 3 == 0; }),
      branching("FourthBatchOfTheSecondEpoch",
                [](Own& own, int64_t i) { return i == 3 && own.current_epoch() == 1; }),
      branching("FromTheThirdEpoch", [](Own& own, int64_t) { return own.current_epoch() >= 2; }),
      branching("OddEpochs", [](Own& own, int64_t) { return own.current_epoch() % 2 == 1; }),
      branching("FromTheTenthStep", [](Own& own, int64_t) { return own.global_step() >= 10; }),
      branching("EveryFourthStep", [](Own& own, int64_t) { return own.global_step() % 4 == 0; }),
      branching("WhileTheRateIsHigh",
                [](Own& own, int64_t) { return own.optimizer().learning_rate() > 5e-3; }),
      weighted("BatchIndexAsWeight",
               [](Own&, int64_t i) { return 1 + 0.1 * static_cast<double>(i); }),
      weighted("BatchIndexOverThreeAsWeight", [](Own&, int64_t i) { return i < 3 ? 1.0 : 2.0; }),
      weighted(
          "BatchIndexReadAndNotUsed", [](Own&, int64_t i) { return i >= 0 ? 2.0 : 1.0; },
          Wanted::kReplayed),
      weighted("KlWarmUpByTheStep",
               [](Own& own, int64_t) {
                 return std::min(1.0, static_cast<double>(own.global_step()) / 10);
               }),
      {.name = "KlWarmUpByAStepValue",
       .step = [](Own& own, const Batch& batch,
                  int64_t) { return plain_loss(own, batch) * (*own.value)(); },
       .wanted = Wanted::kReplayed,
       .build =
           [](Own& own) {
             own.value.emplace([&own] {
               return std::min(1.0, 0.1 * static_cast<double>(1 + own.global_step()));
             });
           },
       .epochs = 6},
      weighted(
          "EpochAsWeight",
          [](Own& own, int64_t) { return 1.0 / static_cast<double>(1 + own.current_epoch()); }),
      [] {
        StepCase row = weighted("StepReadAndNotUsed",
                                [](Own& own, int64_t) { return own.global_step() >= 0 ? 2 : 1; });
        row.wanted = Wanted::kRefused;  // it could be another in any step
        row.word = "it reads global_step()";
        return row;
      }(),
      {.name = "RateInTheLoss",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             return plain_loss(own, batch) * (1 + own.optimizer().learning_rate());
           },
       .optimizer = scheduled},
      {.name = "RateDecidesTheLoss",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             return own.optimizer().learning_rate() < 0.08 ? loss.square() : loss;
           },
       .optimizer = scheduled},
      {.name = "RateReadByTheUsersOwnUpdate",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             own.optimizer().zero_grad();
             own.manual_backward(loss);
             const double decay = own.optimizer().learning_rate() * 0.1;
             const at::NoGradGuard no_grad;
             for (const Tensor& parameter : own.parameters()) parameter.mul_(1 - decay);
             own.optimizer().step();
             return loss;
           },
       .optimizer = scheduled,
       .is_manual = true},
      {.name = "BatchIndexInATensor",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             return plain_loss(own, batch) * torch::full({}, 1 + static_cast<double>(index));
           }},
      {.name = "BatchIndexTakesAColumn",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             return plain_loss(own, batch) +
                    own.net->forward(batch["x"]).select(1, index % 3).mean();
           }},
      {.name = "BatchIndexTakesAHead",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             auto& head = own.part<torch::nn::LinearImpl>(index % 2 == 0 ? "even" : "odd");
             return cross_entropy(head.forward(batch["x"]), batch);
           },
       .build =
           [](Own& own) {
             own.register_module("even", torch::nn::Linear(6, 3));
             own.register_module("odd", torch::nn::Linear(6, 3));
           }},
      {.name = "LogsEverySecondBatch",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             const Tensor loss = plain_loss(own, batch);
             if (index % 2 == 0) own.log("even", loss);
             return loss;
           }},
      {.name = "LogsUnderANameByItsBatch",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             const Tensor loss = plain_loss(own, batch);
             own.log("loss" + std::to_string(index % 2), loss);
             return loss;
           }},
      {.name = "LogsANumberOfTheHost",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             own.log("index", static_cast<double>(index));
             return plain_loss(own, batch);
           },
       .wanted = Wanted::kRefused,
       .word = "training_step logs 'index'"},
      {.name = "SkipsTheFourthBatch",
       .step = [](Own& own, const Batch& batch,
                  int64_t index) { return index == 3 ? Tensor() : plain_loss(own, batch); }},
      {.name = "AccumulatesByItsBatch",
       .step =
           [](Own& own, const Batch& batch, int64_t index) {
             const Tensor loss = plain_loss(own, batch);
             own.manual_backward(loss / 2);
             if (index % 2 == 1) {
               own.optimizer().step();
               own.optimizer().zero_grad();
             }
             return loss;
           },
       .is_manual = true},
  };
}

/// Batches that the row changes: the number of the batch counts from 0 over the run.
struct Changed : Dataset {
  DatasetPtr data = default_data();
  std::function<Batch(const Batch&, int64_t)> change;
  mutable int64_t batches = 0;

  explicit Changed(std::function<Batch(const Batch&, int64_t)> change)
      : change(std::move(change)) {}
  int64_t size() const override { return data->size(); }
  Batch get(std::span<const int64_t> indices) const override {
    return change(data->get(indices), batches++);
  }
};

StepCase changed(const std::string& name, const Step& step,
                 const std::function<Batch(const Batch&, int64_t)>& change,
                 Wanted wanted = Wanted::kEqual) {
  return {.name = name, .step = step, .wanted = wanted, .data = [change]() -> DatasetPtr {
            return std::make_shared<Changed>(change);
          }};
}

/// One half of the run otherwise than the other.
bool is_later(int64_t batch) { return batch >= 9; }

std::vector<StepCase> with_batches() {
  const auto two_losses = [](Own& own, const Batch& batch, int64_t) {
    const Tensor a = own.net->forward(batch["a"]), b = own.net->forward(batch["b"]);
    return cross_entropy(a, batch) + 0.3 * b.square().mean();
  };
  const auto first_field = [](Own& own, const Batch& batch, int64_t) {
    const Tensor loss = cross_entropy(own.net->forward(batch.fields().front().second), batch);
    return batch.fields().front().first == "a" ? loss : loss.square();
  };
  const auto plain = [](Own& own, const Batch& batch, int64_t) { return plain_loss(own, batch); };
  return {
      changed("FieldsInAnotherOrder", two_losses,
              [](const Batch& batch, int64_t number) -> Batch {
                const Tensor& a = batch["x"];
                const Tensor b = a * 3;
                if (is_later(number)) return {{"b", b}, {"a", a}, {"y", batch["y"]}};
                return {{"a", a}, {"b", b}, {"y", batch["y"]}};
              }),
      changed("FieldsInTurns", two_losses,
              [](const Batch& batch, int64_t number) -> Batch {
                const Tensor& a = batch["x"];
                const Tensor b = a * 3;
                if (number % 2 == 1) return {{"b", b}, {"a", a}, {"y", batch["y"]}};
                return {{"a", a}, {"b", b}, {"y", batch["y"]}};
              }),
      changed("FieldsOfOtherNames", first_field,
              [](const Batch& batch, int64_t number) -> Batch {
                return {{is_later(number) ? "b" : "a", batch["x"]}, {"y", batch["y"]}};
              }),
      changed(
          "ContainsAFieldLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return batch.contains("weight") ? loss * batch["weight"].mean() : loss;
          },
          [](const Batch& batch, int64_t number) -> Batch {
            if (!is_later(number)) return {{"x", batch["x"]}, {"y", batch["y"]}};
            return {{"x", batch["x"]}, {"y", batch["y"]}, {"weight", torch::full({8}, 2.0)}};
          }),
      changed(
          "ContainsOneOfTwoFields",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return batch.contains("bonus") ? loss * batch["bonus"].mean()
                                           : loss / batch["malus"].mean();
          },
          [](const Batch& batch, int64_t number) -> Batch {
            return {{"x", batch["x"]},
                    {"y", batch["y"]},
                    {is_later(number) ? "bonus" : "malus", torch::full({8}, 2.0)}};
          }),
      changed("TransposedBatches", plain,
              [](const Batch& batch, int64_t number) -> Batch {
                Tensor x = batch["x"];
                if (is_later(number)) x = x.t().contiguous().t();
                return {{"x", x}, {"y", batch["y"]}};
              }),
      changed(
          "TransposedInTurns",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor& x = batch["x"];
            return cross_entropy(own.net->forward(x.is_contiguous() ? x : x * 2), batch);
          },
          [](const Batch& batch, int64_t number) -> Batch {
            Tensor x = batch["x"];
            if (number % 2 == 1) x = x.t().contiguous().t();
            return {{"x", x}, {"y", batch["y"]}};
          }),
      changed(
          "InputsThatNeedGradients",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return batch["x"].requires_grad() ? loss * 2 : loss;
          },
          [](const Batch& batch, int64_t number) -> Batch {
            return {{"x", batch["x"].clone().requires_grad_(is_later(number))}, {"y", batch["y"]}};
          }),
      changed(
          "InputsOfOtherTypes",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(batch["x"].to(torch::kFloat)), batch);
          },
          [](const Batch& batch, int64_t number) -> Batch {
            return {{"x", is_later(number) ? batch["x"].to(torch::kDouble) : batch["x"]},
                    {"y", batch["y"]}};
          },
          Wanted::kReplayed),
      changed(
          "ConjugatedInputs",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(torch::imag(batch["z"] * 1.5)), batch);
          },
          [](const Batch& batch, int64_t number) -> Batch {
            const Tensor z = torch::complex(batch["x"], batch["x"] * 2);
            return {{"z", is_later(number) ? z.conj() : z}, {"y", batch["y"]}};
          }),
      changed("TwoFieldsThatAreOne", two_losses,
              [](const Batch& batch, int64_t) -> Batch {
                return {{"a", batch["x"]}, {"b", batch["x"]}, {"y", batch["y"]}};
              }),
      changed("TwoFieldsThatAreOneLater", two_losses,
              [](const Batch& batch, int64_t number) -> Batch {
                const Tensor b = is_later(number) ? batch["x"] : batch["x"] * 2;
                return {{"a", batch["x"]}, {"b", b}, {"y", batch["y"]}};
              }),
      changed("AFieldThatIsAViewOfAnother", two_losses,
              [](const Batch& batch, int64_t) -> Batch {
                const Tensor wide = torch::cat({batch["x"], batch["x"]}, 1);
                return {{"a", wide.slice(1, 0, 6)}, {"b", wide.slice(1, 3, 9)}, {"y", batch["y"]}};
              }),
      changed(
          "AFieldOfStrideZero",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(batch["x"] + batch["b"]), batch);
          },
          [](const Batch& batch, int64_t) -> Batch {
            return {{"x", batch["x"]},
                    {"b", torch::ones({1, 6}).expand({batch.size(), 6})},
                    {"y", batch["y"]}};
          }),
      changed(
          "AFieldThatIsWritten",
          [](Own& own, const Batch& batch, int64_t) {
            Tensor x = batch["x"];
            x.mul_(2);
            return cross_entropy(own.net->forward(x) + own.net->forward(batch["b"]), batch);
          },
          [](const Batch& batch, int64_t number) -> Batch {
            const Tensor b = is_later(number) ? batch["x"] : batch["x"].clone();
            return {{"x", batch["x"]}, {"b", b}, {"y", batch["y"]}};
          }),
      {.name = "SetsALossWeight",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.set_loss_weight(static_cast<double>(batch.size()));
             return plain_loss(own, batch);
           },
       .wanted = Wanted::kRefused,
       .word = "set_loss_weight()"},
  };
}

}  // namespace rows_of_step_numbers

std::vector<StepCase> steps_with_numbers() {
  using namespace rows_of_step_numbers;  // NOLINT
  std::vector<StepCase> all = with_counts(), more = with_batches();
  for (StepCase& one : all) one.takes_index = true;
  for (StepCase& one : more) {
    if (one.name == "TransposedInTurns" || one.name == "AFieldThatIsWritten") {
      one.not_on_xla = "uploads keep no strides and no aliases";
    }
  }
  for (StepCase& one : more) all.push_back(std::move(one));
  return all;
}

}  // namespace levin::test
