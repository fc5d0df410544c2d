#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/forward_guards.h"
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
  return {std::move(module),
          levin::make_forward_conditions({.precision = parse_precision(precision)})};
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

at::ScalarType type_of_products() {
  return torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

/// Methods and members of a user's own.
struct OwnImpl : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
  int64_t calls = 0;

  at::Tensor forward(const at::Tensor& x, const at::Tensor& hidden) {
    return layer->forward(x + hidden);
  }
  at::Tensor init_hidden(int64_t rows) { return torch::zeros({rows, 2}); }
  at::Tensor encode(const at::Tensor& x) {
    ++calls;
    return layer->forward(x);
  }
  at::Tensor score(const at::Tensor& a, const at::Tensor& b) { return torch::matmul(a, b.t()); }
  /// Calls a model, itself or another, from within.
  template <class Model>
  std::pair<at::ScalarType, at::ScalarType> around(Model& model) {
    const at::ScalarType before = type_of_products();
    model->encode(torch::ones({1, 2}));
    return {before, type_of_products()};
  }
};

TEST(PreparedModel, ArrowIsTheUsersClass) {
  const auto module = std::make_shared<OwnImpl>();
  auto model = prepared<OwnImpl>("no", module);
  EXPECT_EQ(model->init_hidden(3).sizes(), (std::vector<int64_t>{3, 2}));
  model->encode(torch::ones({1, 2}));
  EXPECT_EQ(model->calls, 1);
  model->calls = 7;
  EXPECT_EQ(module->calls, 7);
  EXPECT_TRUE(model->layer->weight.is_same(module->layer->weight));
  model->zero_grad();
  EXPECT_EQ(model->named_children().size(), 1u);
  const auto copy = model;
  EXPECT_EQ(copy->calls, 7);
}

TEST(PreparedModel, OwnMethodsRunUnderItsPrecision) {
  auto model = prepared<OwnImpl>("bf16");
  EXPECT_EQ(model->encode(torch::ones({3, 2})).scalar_type(), at::kBFloat16);
  EXPECT_EQ(type_of_products(), at::kFloat);
  EXPECT_EQ(model->around(model), std::pair(at::kBFloat16, at::kBFloat16));
  auto other = prepared<OwnImpl>("no");
  EXPECT_EQ(model->around(other), std::pair(at::kBFloat16, at::kBFloat16));
}

TEST(PreparedModel, WhatUsesAForwardIsOutsideOfIt) {
  auto model = prepared<OwnImpl>("bf16"), other = prepared<OwnImpl>("bf16");
  const at::Tensor x = torch::ones({2, 2});
  const auto product = [&](const at::Tensor& y) { return torch::matmul(y, x).scalar_type(); };
  EXPECT_EQ(product(model->forward(x, x)), at::kFloat);
  EXPECT_EQ(product(model->forward(x, model->init_hidden(2))), at::kFloat);
  EXPECT_EQ(product(model->forward(x, other->forward(x, x))), at::kFloat);
  EXPECT_EQ(product(model->forward(x, x) + model->forward(x, x)), at::kFloat);
  EXPECT_EQ(product(model->forward(x, x) + other->forward(x, x)), at::kFloat);
  EXPECT_EQ(type_of_products(), at::kFloat);
}

TEST(PreparedModel, OwnMethodsMayTakeWhatItGave) {
  auto model = prepared<OwnImpl>("bf16"), other = prepared<OwnImpl>("bf16");
  const at::Tensor x = torch::ones({2, 2});
  EXPECT_EQ(model->score(model->encode(x), other->encode(x)).scalar_type(), at::kBFloat16);
  EXPECT_EQ(other->score(model->forward(x, x), x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(type_of_products(), at::kFloat);
}

TEST(PreparedModel, AnOwnMethodThatThrowsEndsItsAutocast) {
  auto model = prepared<ManyImpl>("bf16");
  auto own = prepared<OwnImpl>("bf16");
  EXPECT_THROW(own->score(torch::ones({2, 3}), torch::ones({2, 2})), c10::Error);
  EXPECT_THROW(own->forward(model->forward(torch::ones({2})), torch::ones({1})),
               std::invalid_argument);
  EXPECT_EQ(type_of_products(), at::kFloat);
}

struct FinalImpl final : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
};

TEST(PreparedModel, OfAFinalClassHasForward) {
  auto model = prepared<FinalImpl>("bf16");
  EXPECT_EQ(model->forward(torch::ones({3, 2})).scalar_type(), at::kFloat);
  EXPECT_EQ(model->parameters().size(), 2u);
}

/// What a class of the user's own overrides is what is called, also through a pointer to its base.
struct BaseImpl : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  virtual at::Tensor twice(const at::Tensor& x) { return 2 * x; }
};
struct DerivedImpl : BaseImpl {
  at::Tensor forward(const at::Tensor& x) override { return x + 1; }
  at::Tensor twice(const at::Tensor& x) override { return 3 * x; }
};

TEST(PreparedModel, CallsWhatADerivedClassOverrides) {
  auto model = prepared<BaseImpl>("no", std::make_shared<DerivedImpl>());
  EXPECT_EQ(model->forward(torch::zeros({})).item<double>(), 1);
  EXPECT_EQ(model->twice(torch::ones({})).item<double>(), 3);
}

TEST(PreparedModel, ItsParametersAreTheModules) {
  auto model = prepared<OwnNetImpl>("no");
  EXPECT_TRUE(model->parameters().at(0).is_same((*model).hidden->weight));
}

}  // namespace
