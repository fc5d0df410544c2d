// What has ended the process, or nearly: the run goes on as it does eager.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_crashes {

namespace nn = torch::nn;
using at::Tensor;

constexpr int64_t kLater = 9;

Tensor plain(Own& own, const Batch& batch, int64_t) { return plain_loss(own, batch); }

StepCase changed(const std::string& name, const std::function<void(Own&, Trainer&)>& change,
                 int64_t at = kLater) {
  return {.name = name, .step = plain, .before = [=](Own& own, Trainer& trainer, int64_t now) {
            if (now == at) change(own, trainer);
          }};
}

/// Batches over memory that is not their own.
struct Made : Dataset {
  std::function<Batch(const Batch&, int64_t)> make;
  DatasetPtr data = default_data();
  mutable int64_t batches = 0;
  explicit Made(std::function<Batch(const Batch&, int64_t)> make) : make(std::move(make)) {}
  int64_t size() const override { return data->size(); }
  Batch get(std::span<const int64_t> indices) const override {
    return make(data->get(indices), batches++);
  }
};

StepCase on_batches(const std::string& name, const Step& step,
                    const std::function<Batch(const Batch&, int64_t)>& make) {
  return {.name = name, .step = step, .data = [make]() -> DatasetPtr {
            return std::make_shared<Made>(make);
          }};
}

}  // namespace rows_of_step_crashes

std::vector<StepCase> steps_that_crash() {
  using namespace rows_of_step_crashes;  // NOLINT
  const auto in_double = caffe2::TypeMeta::Make<double>();
  return {
      changed("TheDefaultDtypeChanges",
              [=](Own&, Trainer&) { torch::set_default_dtype(in_double); }),
      {.name = "TheDefaultDtypeChangesUnderOptionsOfTensors",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor scale = torch::full({6}, 2.0, torch::kFloat);
             return cross_entropy(own.net->forward(batch["x"] * scale), batch);
           },
       .before =
           [=](Own&, Trainer&, int64_t now) {
             if (now == kLater) torch::set_default_dtype(in_double);
           }},
      {.name = "TheDefaultDtypeChangesWithinAStep",
       .step =
           [=](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             torch::set_default_dtype(in_double);
             const Tensor scale = torch::ones({}) * 2;
             torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
             return loss * scale;
           }},
      changed("AParametersDataIsSet",
              [](Own& own, Trainer&) {
                Tensor parameter = own.parameters()[0];
                parameter.set_data(torch::full_like(parameter, 0.1));
              }),
      changed("AllParametersDataIsSet",
              [](Own& own, Trainer&) {
                for (Tensor& parameter : own.parameters())
                  parameter.set_data(parameter.detach() * 2);
              }),
      changed(
          "AllParametersDataIsSetBeforeTheFirstRecording",
          [](Own& own, Trainer&) {
            for (Tensor& parameter : own.parameters()) parameter.set_data(parameter.detach() * 2);
          },
          1),
      changed(
          "AllParametersDataIsSetBetweenTwoRecordings",
          [](Own& own, Trainer&) {
            for (Tensor& parameter : own.parameters()) parameter.set_data(parameter.detach() * 2);
          },
          2),
      {.name = "DataIsSetInEachEpoch",
       .step = plain,
       .before =
           [](Own& own, Trainer&, int64_t now) {
             if (now % 6 != 5) return;
             Tensor parameter = own.parameters()[0];
             parameter.set_data(parameter.detach().clone());
           }},
      {.name = "DataIsSetWithinTheStep",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             Tensor parameter = own.parameters()[0];
             loss.backward();
             parameter.set_data(parameter.detach() * 0.9);
             return plain_loss(own, batch);
           }},
      {.name = "WeightsAreSwappedWithinTheStep",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor parameter = own.parameters()[0];
             const Tensor mine = parameter.detach();
             parameter.set_data(mine * 0.5);
             const Tensor target = own.net->forward(batch["x"]).detach();
             parameter.set_data(mine);
             return plain_loss(own, batch) +
                    (own.net->forward(batch["x"]) - target).square().mean();
           }},
      changed("GradientsAreSetToOtherTensors",
              [](Own& own, Trainer&) {
                for (Tensor& parameter : own.parameters()) {
                  parameter.mutable_grad() = torch::ones_like(parameter);
                }
              }),
      changed("ThreadsAreMore", [](Own&, Trainer&) { at::set_num_threads(2); }),
      changed("DeterministicAlgorithmsAreAskedFor",
              [](Own&, Trainer&) {
                at::globalContext().setDeterministicAlgorithms(true, false);
                at::globalContext().setDeterministicAlgorithms(false, false);
              }),
      on_batches("ABatchThatIsAView", plain,
                 [](const Batch& batch, int64_t) -> Batch {
                   const Tensor wide = torch::cat({batch["x"], batch["x"]}, 1);
                   return {{"x", wide.slice(1, 3, 9)}, {"y", batch["y"]}};
                 }),
      on_batches(
          "ABatchOfOneTensorTwice",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(batch["x"] + batch["z"]), batch);
          },
          [](const Batch& batch, int64_t) -> Batch {
            return {{"x", batch["x"]}, {"z", batch["x"]}, {"y", batch["y"]}};
          }),
      on_batches(
          "ABatchOfATensorAndItsTransposed",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(batch["x"]), batch) +
                   batch["z"].matmul(batch["x"]).square().mean() *
                       own.parameters()[0].square().mean();
          },
          [](const Batch& batch, int64_t) -> Batch {
            return {{"x", batch["x"]}, {"z", batch["x"].t()}, {"y", batch["y"]}};
          }),
      on_batches("ABatchThatOverlapsWithinItself", plain,
                 [](const Batch& batch, int64_t) -> Batch {
                   const Tensor row = batch["x"].flatten().slice(0, 0, 13).contiguous();
                   return {{"x", row.unfold(0, 6, 1)}, {"y", batch["y"]}};
                 }),
      {.name = "ABatchOfTheModulesOwnBuffer",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.list = {batch["x"]};
             own.named_buffers()["state"].copy_(batch["x"]);
             return cross_entropy(own.net->forward(own.named_buffers()["state"].clone()), batch);
           },
       .build =
           [](Own& own) {
             own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
             own.register_buffer("state", torch::zeros({8, 6}));
           }},
      on_batches(
          "EmptyFields",
          [](Own& own, const Batch& batch, int64_t) {
            return plain_loss(own, batch) + batch["none"].sum();
          },
          [](const Batch& batch, int64_t) -> Batch {
            return {{"x", batch["x"]}, {"y", batch["y"]}, {"none", torch::empty({8, 0})}};
          }),
      {.name = "AStepWithinAStep",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             if (own.counts["depth"] > 0) return plain_loss(own, batch);
             ++own.counts["depth"];
             const Tensor inner = own.training_step(batch, 0);
             --own.counts["depth"];
             return inner + plain_loss(own, batch);
           }},
  };
}

}  // namespace levin::test
