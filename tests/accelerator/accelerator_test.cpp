#include "levin/accelerator/accelerator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <limits>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"

namespace {

using levin::Accelerator;
using levin::OptimizerConfig;
using levin::ReduceOp;
using levin::optim::adamw;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::expect_same_weights;
using small_nets::dataset;
using small_nets::expect_close_weights;
using small_nets::loss_of;
using small_nets::OwnNet;
using small_nets::OwnNetImpl;
using small_nets::sequential;
using small_nets::whole;
using ::testing::StartsWith;

TEST(Accelerator, InFloat32EqualsALoopWrittenByHand) {
  const levin::DataLoader data(dataset(80), {.batch_size = 8});
  Accelerator accelerator({.cpu = true});
  auto net = sequential();
  auto [model, optimizer, loader] =
      accelerator.prepare(net, sgd({.lr = 0.1, .momentum = 0.9}), data);
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    accelerator.backward(loss_of(model, batch));
    optimizer.step();
  }
  auto reference = sequential();
  torch::optim::SGD by_hand(reference->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const auto& batch : levin::DataLoader(dataset(80), {.batch_size = 8})) {
    by_hand.zero_grad();
    loss_of(reference, batch).backward();
    by_hand.step();
  }
  expect_close_weights(*net, *reference);
}

TEST(Accelerator, PrepareTakesItsArgumentsInAnyOrderAndGivesThemBackInThatOrder) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  auto [loader, optimizer, model] =
      accelerator.prepare(levin::DataLoader(dataset(8), {.batch_size = 4}), sgd(), net);
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(optimizer.optimizer().name(), "sgd");
  EXPECT_EQ(&*model, net.get());
}

TEST(Accelerator, PrepareTakesAConstHolder) {
  Accelerator accelerator({.cpu = true});
  const OwnNet net;
  auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
  accelerator.backward(loss_of(model, whole(dataset(8))));
  const at::Tensor before = net->out->weight.clone();
  optimizer.step();
  EXPECT_FALSE(torch::equal(net->out->weight, before));
}

TEST(Accelerator, SeveralPrepareCallsAddUp) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  accelerator.prepare(net);
  auto [optimizer] = accelerator.prepare(sgd());
  EXPECT_EQ(optimizer.optimizer().parameters().size(), net->parameters().size());
}

TEST(Accelerator, AModulePreparedAgainCountsOnce) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  accelerator.prepare(net);
  auto [model, optimizer] = accelerator.prepare(net, sgd());
  EXPECT_EQ(accelerator.state_dict().weights.size(), 1u);
  EXPECT_EQ(optimizer.optimizer().parameters().size(), net->parameters().size());
}

TEST(Accelerator, EachOfSeveralOptimizersUpdatesTheModelItIsBoundTo) {
  Accelerator accelerator({.cpu = true});
  OwnNet one, two;
  auto [first, second, optimizer_of_two, optimizer_of_one] =
      accelerator.prepare(one, two, adamw({.lr = 0.1}).of(two), sgd({.lr = 0.1}).of(one));
  const levin::Batch batch = whole(dataset(8));
  accelerator.backward(loss_of(first, batch) + loss_of(second, batch));
  const OwnNet untouched;
  optimizer_of_two.step();
  expect_same_weights(*one, *untouched);
  EXPECT_FALSE(torch::equal(two->out->weight, untouched->out->weight));
  optimizer_of_one.step();
  EXPECT_FALSE(torch::equal(one->out->weight, untouched->out->weight));
}

TEST(Accelerator, AnOptimizerMayBeBoundToAPartOfAModule) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  auto [model, optimizer] = accelerator.prepare(net, sgd().of(net->out));
  ASSERT_EQ(optimizer.optimizer().parameters().size(), 2u);
  EXPECT_TRUE(optimizer.optimizer().parameters().front().tensor.is_same(net->out->weight));
}

TEST(Accelerator, AVectorOfOptimizersComesBackAsAVector) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  auto [model, optimizers] = accelerator.prepare(
      net, std::vector<OptimizerConfig>{sgd().of(net->hidden), adamw().of(net->out)});
  ASSERT_EQ(optimizers.size(), 2u);
  EXPECT_EQ(optimizers[0].optimizer().name(), "sgd");
  EXPECT_EQ(optimizers[1].optimizer().name(), "adamw");
}

TEST(Accelerator, SeveralOptimizersInOneConfigAreAnErrorThatSaysWhatToGive) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  const OptimizerConfig both{sgd().of(net->hidden), adamw().of(net->out)};
  EXPECT_THAT(error_of([&] { accelerator.prepare(net, both); }),
              StartsWith("accelerator.optimizer: got 2 optimizers in one OptimizerConfig"));
}

TEST(Accelerator, AnUnboundOptimizerWithSeveralModelsIsAnError) {
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(
      error_of([&] { accelerator.prepare(OwnNet(), OwnNet(), adamw()); }),
      StartsWith("accelerator.optimizer: adamw is bound to no module, but 2 modules are prepared; "
                 "bind it with optim::adamw(...).of(module)"));
}

TEST(Accelerator, PatternsOfABoundOptimizerAreOverItsModulesOwnNames) {
  Accelerator accelerator({.cpu = true});
  auto first = sequential(), second = sequential();
  auto [a, b, bound, by_pattern] = accelerator.prepare(
      first, second, sgd().of(second).parameters("0.*"), sgd().parameters("0.*.bias"));
  EXPECT_EQ(bound.optimizer().parameters().size(), 2U);
  EXPECT_TRUE(bound.optimizer().parameters().front().tensor.is_same(second->parameters().front()));
  EXPECT_TRUE(
      by_pattern.optimizer().parameters().front().tensor.is_same(first->parameters().at(1)));
}

TEST(Accelerator, ItsOptionsAreFlagsAndTomlKeys) {
  const auto text = levin::options_as_text(levin::AcceleratorOptions{.mixed_precision = "bf16"});
  EXPECT_EQ(text.at("mixed_precision"), "bf16");
  EXPECT_EQ(text.at("ddp_bucket_cap_mb"), "25");
}

TEST(Accelerator, AnOptimizerWithoutAnyModelIsAnError) {
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(
      error_of([&] { accelerator.prepare(adamw()); }),
      StartsWith("accelerator.optimizer: adamw is bound to no module, but 0 modules are prepared"));
}

TEST(Accelerator, AnOptimizerOfAModuleThatWasNotPreparedIsAnError) {
  Accelerator accelerator({.cpu = true});
  const OwnNet stranger;
  EXPECT_THAT(error_of([&] { accelerator.prepare(OwnNet(), sgd().of(stranger)); }),
              StartsWith("accelerator.optimizer: sgd is bound to a module that was not prepared"));
}

TEST(Accelerator, AnEmptyHolderOrPointerIsAnError) {
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(error_of([&] { accelerator.prepare(std::shared_ptr<OwnNetImpl>()); }),
              StartsWith("accelerator.module"));
  EXPECT_THAT(error_of([&] { accelerator.prepare(OwnNet(nullptr)); }),
              StartsWith("accelerator.module"));
}

TEST(Accelerator, AfterFreeMemoryOthersCanBePrepared) {
  Accelerator accelerator({.cpu = true});
  accelerator.prepare(sequential(), sgd(), levin::DataLoader(dataset(8)));
  accelerator.free_memory();
  OwnNet net;
  auto [model, optimizer] = accelerator.prepare(net, sgd());
  EXPECT_TRUE(optimizer.optimizer().parameters().front().tensor.is_same(net->hidden->weight));
  const levin::Checkpoint state = accelerator.state_dict();
  EXPECT_EQ(state.weights.size(), 1u);
  EXPECT_EQ(state.training.child("optimizers").values().size(), 1u);
  EXPECT_TRUE(state.training.child("loaders").empty());
}

TEST(Accelerator, AccumulatedMicroBatchesEqualTheLargeBatch) {
  const levin::Batch large = whole(dataset(32));
  const auto train = [&](int64_t micro_batches) {
    Accelerator accelerator({.cpu = true});
    OwnNet net;
    auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.5}));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      for (int64_t i = 0; i < micro_batches; ++i) {
        const int64_t size = 32 / micro_batches;
        accelerator.backward(loss_of(model, large.narrow(i * size, size)) / micro_batches,
                             /*synchronize=*/i + 1 == micro_batches);
      }
      optimizer.step();
    }
    return net;
  };
  expect_close_weights(*train(4), *train(1));
}

TEST(Accelerator, ALossOfSeveralElementsIsAnErrorThatNamesItsShape) {
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(error_of([&] { accelerator.backward(torch::ones({2, 3}).requires_grad_()); }),
              StartsWith("accelerator.loss: got a loss of shape [2, 3], wanted a scalar"));
}

TEST(Accelerator, ALossWithoutGraphIsAnError) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  EXPECT_THAT(error_of([&] { accelerator.backward(loss_of(net, whole(dataset(8))).detach()); }),
              StartsWith("accelerator.loss: this loss depends on no parameter"));
}

/// Two models after a backward pass over both; prepared, so that both are clipped.
struct TwoModels {
  OwnNet one, two;

  explicit TwoModels(Accelerator* accelerator) {
    if (accelerator != nullptr) accelerator->prepare(one, two);
    const levin::Batch batch = whole(dataset(8));
    (loss_of(one, batch) + 2 * loss_of(two, batch)).backward();
  }
  std::vector<at::Tensor> parameters() const {
    auto all = one->parameters();
    for (const at::Tensor& parameter : two->parameters()) all.push_back(parameter);
    return all;
  }
};

void expect_close_gradients(const TwoModels& a, const TwoModels& b) {
  const auto mine = a.parameters();
  const auto theirs = b.parameters();
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine[i].grad(), theirs[i].grad(), 1e-5, 1e-8)) << i;
  }
}

TEST(Accelerator, ClipsTheNormOverAllModelsAsTorchDoes) {
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    Accelerator accelerator({.cpu = true});
    const TwoModels models(&accelerator);
    const double norm = accelerator.clip_grad_norm(0.01, norm_type).item<double>();
    const TwoModels reference(nullptr);
    const double wanted =
        torch::nn::utils::clip_grad_norm_(reference.parameters(), 0.01, norm_type);
    EXPECT_NEAR(norm, wanted, 1e-5 * wanted) << norm_type;
    expect_close_gradients(models, reference);
  }
}

TEST(Accelerator, ClipsValuesOfAllModelsAsTorchDoes) {
  Accelerator accelerator({.cpu = true});
  const TwoModels models(&accelerator);
  accelerator.clip_grad_value(0.01);
  const TwoModels reference(nullptr);
  torch::nn::utils::clip_grad_value_(reference.parameters(), 0.01);
  expect_close_gradients(models, reference);
}

/// Two modules with one parameter between them, w = 1 with gradient 3.
struct Sharing {
  struct Holding : torch::nn::Module {
    explicit Holding(const at::Tensor& w) { register_parameter("w", w); }
  };
  at::Tensor w = torch::ones({1}).requires_grad_();
  std::shared_ptr<Holding> one = std::make_shared<Holding>(w);
  std::shared_ptr<Holding> two = std::make_shared<Holding>(w);

  Sharing() { (w * 3).sum().backward(); }
};

TEST(Accelerator, AParameterThatTwoModelsShareIsClippedOnce) {
  Accelerator accelerator({.cpu = true});
  const Sharing shared;
  accelerator.prepare(shared.one, shared.two);
  EXPECT_FLOAT_EQ(accelerator.clip_grad_norm(1.0).item<float>(), 3.0F);
  EXPECT_NEAR(shared.w.grad().item<double>(), 1.0, 1e-5);
}

TEST(Accelerator, AParameterThatTwoModelsShareIsUpdatedOnce) {
  for (const bool by_first : {true, false}) {
    Accelerator accelerator({.cpu = true});
    const Sharing shared;
    const auto& bound = by_first ? shared.one : shared.two;
    auto [one, two, optimizer] =
        accelerator.prepare(shared.one, shared.two, sgd({.lr = 0.1}).of(bound));
    optimizer.step();
    EXPECT_NEAR(shared.w.item<double>(), 1.0 - 0.1 * 3, 1e-6) << by_first;
  }
}

TEST(Accelerator, Bfloat16sLossIsCloseToFloat32s) {
  const levin::Batch batch = whole(dataset(64));
  const auto loss = [&](const char* precision) {
    Accelerator accelerator({.mixed_precision = precision, .cpu = true});
    auto [model] = accelerator.prepare(OwnNet());
    return loss_of(model, batch).template item<double>();
  };
  EXPECT_NEAR(loss("bf16"), loss("no"), 0.01);
  EXPECT_NE(loss("bf16"), loss("no"));
}

TEST(Accelerator, Bfloat16KeepsParametersAndGradientsInFloat32) {
  Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
  OwnNet net;
  auto [model] = accelerator.prepare(net);
  accelerator.backward(loss_of(model, whole(dataset(8))));
  for (const at::Tensor& parameter : net->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
    EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
  }
}

TEST(Accelerator, AutocastCoversCodeBesideTheModel) {
  Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
  const at::Tensor x = torch::ones({2, 2});
  {
    const levin::AutocastGuard autocast = accelerator.autocast();
    EXPECT_EQ(torch::matmul(x, x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(torch::matmul(x, x).scalar_type(), at::kFloat);
}

TEST(Accelerator, AnUnknownPrecisionDeviceOrStrategyIsAnErrorThatNamesIt) {
  EXPECT_THAT(error_of([] { Accelerator accelerator({.mixed_precision = "int4"}); }),
              StartsWith("accelerator.precision: got 'int4'"));
  EXPECT_THAT(error_of([] { Accelerator accelerator({.accelerator = "npu"}); }),
              StartsWith("accelerator.device: got 'npu'"));
  EXPECT_THAT(error_of([] { Accelerator accelerator({.strategy = "signle"}); }),
              StartsWith("strategy.name: got 'signle'"));
}

TEST(Accelerator, TheCpuIsUsedWhenItIsAskedForWhateverElseIs) {
  EXPECT_TRUE(Accelerator({.cpu = true, .accelerator = "gpu"}).device().is_cpu());
}

TEST(Accelerator, ASingleProcessIsTheMainOneAndReducesToItsOwnValue) {
  Accelerator accelerator({.cpu = true});
  EXPECT_TRUE(accelerator.is_main_process());
  const at::Tensor value = torch::tensor({2.0, 3.0});
  EXPECT_TRUE(torch::equal(accelerator.reduce(value, ReduceOp::kMean), value));
  EXPECT_TRUE(accelerator.any(true));
  EXPECT_FALSE(accelerator.any(false));
}

TEST(Accelerator, OfASingleProcessReducesAndGathersItsOwn) {
  Accelerator accelerator({.cpu = true});
  const at::Tensor value = torch::tensor({1.5, -2.0});
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(torch::equal(accelerator.reduce(value, op), value)) << static_cast<int>(op);
  }
  levin::State state;
  state.set("count", int64_t{4});
  const auto states = accelerator.gather_object(state);
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states.front().integer("count"), 4);
}

TEST(Accelerator, VariablesOfALauncherThatAreSetByHalfAreAnError) {
  ::setenv("WORLD_SIZE", "2", 1);
  const std::string error = error_of([] { Accelerator accelerator({.cpu = true}); });
  ::unsetenv("WORLD_SIZE");
  EXPECT_THAT(error, StartsWith("comm.environment.missing"));
}

}  // namespace
