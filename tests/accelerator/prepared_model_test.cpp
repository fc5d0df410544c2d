#include "levin/accelerator/prepared/prepared_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/accelerator/small_nets.h"

namespace {

using levin::parse_precision;
using levin::PreparedModel;
using small_nets::OwnNetImpl;

/// Forwards of several arguments and results; under autocast the product is in bfloat16.
struct ManyImpl : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
  at::ScalarType inside = at::kFloat;

  std::tuple<at::Tensor, at::Tensor, int64_t> forward(const at::Tensor& x, int64_t times) {
    const at::Tensor product = layer->forward(x);
    inside = product.scalar_type();
    return {product, x.gt(0), times * x.size(0)};
  }
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& xs) {
    std::vector<at::Tensor> outputs;
    for (const at::Tensor& x : xs) outputs.push_back(layer->forward(x));
    return outputs;
  }
  at::Tensor forward(const at::Tensor& x) {
    if (x.dim() != 2) throw std::invalid_argument("no matrix");
    return layer->forward(x);
  }
};

template <class Impl>
PreparedModel<Impl> prepared(const char* precision,
                             std::shared_ptr<Impl> module = std::make_shared<Impl>()) {
  return {std::move(module), parse_precision(precision), at::kCPU};
}

TEST(PreparedModel, ComputesInBfloat16AndGivesFloat32) {
  auto model = prepared<ManyImpl>("bf16");
  EXPECT_EQ(model->forward(torch::ones({3, 2})).scalar_type(), at::kFloat);
  std::get<0>(model->forward(torch::ones({3, 2}), 1));
  EXPECT_EQ((*model).inside, at::kBFloat16);
}

TEST(PreparedModel, InFloat32GivesWhatTheModuleGives) {
  const auto module = std::make_shared<OwnNetImpl>();
  auto model = prepared<OwnNetImpl>("no", module);
  const at::Tensor x = torch::randn({4, 6});
  EXPECT_TRUE(torch::equal(model->forward(x), module->forward(x)));
}

TEST(PreparedModel, GivesEachTensorOfATupleInFloat32AndLeavesTheRest) {
  auto model = prepared<ManyImpl>("bf16");
  const auto [product, positive, count] = model->forward(torch::ones({3, 2}), 5);
  EXPECT_EQ(product.scalar_type(), at::kFloat);
  EXPECT_EQ(positive.scalar_type(), at::kBool);
  EXPECT_EQ(count, 15);
}

TEST(PreparedModel, GivesEachTensorOfAVectorInFloat32) {
  auto model = prepared<ManyImpl>("bf16");
  const auto outputs =
      model->forward(std::vector<at::Tensor>{torch::ones({1, 2}), torch::ones({2, 2})});
  ASSERT_EQ(outputs.size(), 2u);
  for (const at::Tensor& output : outputs) EXPECT_EQ(output.scalar_type(), at::kFloat);
}

TEST(PreparedModel, GivesFloat64OfAFloat64Module) {
  auto model = prepared<ManyImpl>("no");
  (*model).to(torch::kDouble);
  EXPECT_EQ(model->forward(torch::ones({1, 2}, torch::kDouble)).scalar_type(), at::kDouble);
}

TEST(PreparedModel, CarriesGradientsBackToTheModule) {
  auto model = prepared<ManyImpl>("bf16");
  model->forward(torch::ones({3, 2})).sum().backward();
  EXPECT_TRUE(torch::equal((*model).layer->bias.grad(), torch::full({2}, 3.0)));
}

TEST(PreparedModel, AForwardThatThrowsEndsItsAutocast) {
  auto model = prepared<ManyImpl>("bf16");
  EXPECT_THROW(model->forward(torch::ones({2})), std::invalid_argument);
  EXPECT_EQ(torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), at::kFloat);
}

TEST(PreparedModel, DereferencedIsTheUsersModule) {
  const auto module = std::make_shared<OwnNetImpl>();
  auto model = prepared<OwnNetImpl>("no", module);
  EXPECT_EQ(&*model, module.get());
  EXPECT_EQ(model.unwrap(), module);
}

TEST(PreparedModel, TrainAndEvalReachTheModule) {
  auto model = prepared<OwnNetImpl>("no");
  model.eval();
  EXPECT_FALSE((*model).is_training());
  model->train();
  EXPECT_TRUE((*model).is_training());
}

TEST(PreparedModel, ItsParametersAreTheModules) {
  auto model = prepared<OwnNetImpl>("no");
  EXPECT_TRUE(model->parameters().at(0).is_same((*model).hidden->weight));
}

}  // namespace
