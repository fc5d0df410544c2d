// A linear layer's product with its own operator back: gradients as on the CPU, those of gradients
// too.
#include <gtest/gtest.h>

#include "tests/xla/on_both_devices.h"

namespace {

using at::Tensor;
using levin::test::expect_near;
using levin::test::xla_runtime;
using Tensors = std::vector<Tensor>;

struct AddmmCase {
  const char* name;
  std::vector<int64_t> self;
  double beta = 1, alpha = 1;
  std::array<bool, 3> trains = {true, true, true};
};

std::ostream& operator<<(std::ostream& out, const AddmmCase& of) { return out << of.name; }

/// The result, its gradients, and those of their squares.
Tensors computed(const AddmmCase& of, at::Device device) {
  torch::manual_seed(3);
  Tensors leaves;
  const std::vector<std::vector<int64_t>> sizes = {of.self, {4, 3}, {3, 5}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    leaves.push_back(torch::randn(sizes[i]).to(device).requires_grad_(of.trains[i]));
  }
  const Tensor result = at::addmm(leaves[0], leaves[1], leaves[2], of.beta, of.alpha);
  Tensors trained;
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) trained.push_back(leaf);
  }
  const Tensor loss = result.sin().sum();
  const Tensors plain = torch::autograd::grad({loss}, trained, {}, /*retain_graph=*/true);
  const Tensors gradients =
      torch::autograd::grad({loss}, trained, {}, /*retain_graph=*/true, /*create_graph=*/true);
  Tensor squares = torch::zeros({}, at::TensorOptions(device));
  for (const Tensor& gradient : gradients) squares = squares + gradient.square().sum();
  Tensors all = {result};
  all.insert(all.end(), plain.begin(), plain.end());
  for (const Tensor& second : torch::autograd::grad({squares}, trained)) all.push_back(second);
  return all;
}

class ProductsOnXla : public testing::TestWithParam<AddmmCase> {};

TEST_P(ProductsOnXla, HaveTheGradientsOfTheCpu) {
  const Tensors wanted = computed(GetParam(), at::kCPU);
  const Tensors came = computed(GetParam(), xla_runtime().device());
  ASSERT_EQ(came.size(), wanted.size());
  for (size_t i = 0; i < came.size(); ++i) {
    ASSERT_EQ(came[i].sizes(), wanted[i].sizes()) << i;
    expect_near(came[i], wanted[i], "value " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, ProductsOnXla,
    testing::Values(AddmmCase{"ABias", {5}}, AddmmCase{"ARow", {1, 5}},
                    AddmmCase{"AColumn", {4, 1}}, AddmmCase{"AMatrix", {4, 5}},
                    AddmmCase{"ANumber", {}}, AddmmCase{"AScaledProduct", {5}, 1, 0.5},
                    AddmmCase{"AScaledBias", {5}, 2, 1},
                    AddmmCase{"OfAFirstLayer", {5}, 1, 1, {true, false, true}},
                    AddmmCase{"OfAFrozenLayer", {5}, 1, 1, {false, true, false}}),
    [](const auto& info) { return info.param.name; });

/// Seven are LibTorch's.
TEST(ProductOnXla, IsOneOperatorBack) {
  const Tensor x = torch::randn({4, 3}).to(xla_runtime().device());
  const Tensor weight = torch::randn({3, 5}).to(xla_runtime().device()).requires_grad_();
  const Tensor bias = torch::randn({5}).to(xla_runtime().device()).requires_grad_();
  const Tensor above = torch::randn({4, 5}).to(xla_runtime().device());
  xla_runtime().sync();
  const auto gradients =
      torch::autograd::grad({at::addmm(bias, x, weight)}, {weight, bias}, {above});
  xla_runtime().sync();
  const auto& programs = xla_runtime().report().programs;
  ASSERT_FALSE(programs.empty());
  EXPECT_EQ(programs.back().num_operators, 1) << "the product itself is needed by nobody";
}

}  // namespace
