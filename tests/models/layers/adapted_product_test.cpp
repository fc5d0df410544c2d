// A layer with an adapter as one node of autograd, held against the same arithmetic operator by operator.
#include "levin/models/layers/adapted_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "tests/graph/against_eager.h"
#include "tests/models/small_models.h"
#include "tests/support/peak_memory.h"

namespace levin::models::adapted_product_tests {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Case {
  const char* name;
  bool bias = true, is_transposed = false;
  double dropout = 0;
  at::ScalarType dtype = at::kDouble;
};

const Case kCases[] = {{.name = "biased"},
                       {.name = "plain", .bias = false},
                       {.name = "transposed", .is_transposed = true},
                       {.name = "dropped", .dropout = 0.4},
                       {.name = "single", .dtype = at::kFloat}};

/// Two texts of 5 vectors: 7 numbers in, 6 out, rank 3.
struct Given {
  explicit Given(const Case& c) {
    torch::manual_seed(5);
    const auto options = at::TensorOptions(c.dtype);
    x = at::randn({2, 5, 7}, options).requires_grad_();
    adapted.matrix = c.is_transposed ? at::randn({7, 6}, options).t() : at::randn({6, 7}, options);
    if (c.bias) adapted.bias = at::randn({6}, options);
    adapted.a = at::randn({3, 7}, options).requires_grad_();
    adapted.b = at::randn({6, 3}, options).requires_grad_();
    adapted.scale = 0.7;
    adapted.dropout = c.dropout;
  }

  at::Tensor one_node(const at::Tensor& in) const {
    torch::manual_seed(9);  // of dropout
    return adapted_product(in, adapted);
  }
  at::Tensor by_operators(const at::Tensor& in) const {
    torch::manual_seed(9);
    const at::Tensor z = at::dropout(in, adapted.dropout, adapted.dropout > 0);
    return at::linear(in, adapted.matrix, adapted.bias) +
           at::linear(at::linear(z, adapted.a), adapted.b) * adapted.scale;
  }
  Tensors inputs() const { return {x, adapted.a, adapted.b}; }

  at::Tensor x;
  AdaptedMatrix adapted;
};

double difference(const at::Tensor& found, const at::Tensor& wanted) {
  const auto a = found.detach().to(at::kDouble), b = wanted.detach().to(at::kDouble);
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

void expect_near(const Tensors& found, const Tensors& wanted, double most, const char* what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].defined()) << what << " " << i;
    ASSERT_EQ(found[i].sizes(), wanted[i].sizes()) << what << " " << i;
    EXPECT_LT(difference(found[i], wanted[i]), most) << what << " " << i;
  }
}

TEST(AdaptedProduct, IsWhatItsOperatorsGiveWithEachGradient) {
  for (const Case& c : kCases) {
    const Given given(c);
    const double most = c.dtype == at::kDouble ? 1e-13 : 1e-5;
    const at::Tensor found = given.one_node(given.x), wanted = given.by_operators(given.x);
    expect_near({found}, {wanted}, most, c.name);
    const at::Tensor weights = at::randn_like(wanted);
    expect_near(torch::autograd::grad({(found * weights).sum()}, given.inputs()),
                torch::autograd::grad({(wanted * weights).sum()}, given.inputs()), most, c.name);
  }
}

/// The layer's own result goes through it once more, so that each of its gradients comes twice.
TEST(AdaptedProduct, UsedTwiceSumsItsGradients) {
  for (const Case& c : kCases) {
    const Given given(c);
    const auto twice = [&](const auto& product) {
      const at::Tensor once = product(given.x);
      return (product(at::cat({once, once.narrow(-1, 0, 1)}, -1).tanh()).square() + once).sum();
    };
    const auto found = twice([&](const at::Tensor& x) { return given.one_node(x); });
    const auto wanted = twice([&](const at::Tensor& x) { return given.by_operators(x); });
    expect_near(torch::autograd::grad({found}, given.inputs()),
                torch::autograd::grad({wanted}, given.inputs()),
                c.dtype == at::kDouble ? 1e-12 : 1e-4, c.name);
  }
}

TEST(AdaptedProduct, GradientsOfGradientsAreRight) {
  for (const Case& c : kCases) {
    if (c.dtype != at::kDouble) continue;
    const Given given(c);
    const at::Tensor weights = at::randn({2, 5, 6}, at::kDouble).requires_grad_();
    const auto second = [&](const at::Tensor& y) {
      const Tensors first = torch::autograd::grad({(y * weights).sum()}, given.inputs(), {},
                                                  /*retain_graph=*/true, /*create_graph=*/true);
      at::Tensor sum = at::zeros({}, at::kDouble);
      for (const at::Tensor& gradient : first) sum = sum + gradient.pow(3).sum();
      Tensors of = given.inputs();
      of.push_back(weights);
      return torch::autograd::grad({sum}, of);
    };
    expect_near(second(given.one_node(given.x)), second(given.by_operators(given.x)), 1e-12,
                c.name);
  }
}

TEST(AdaptedProduct, ComputesWhatIsAskedForAlone) {
  Given given(kCases[0]);
  given.x = given.x.detach();
  given.adapted.a = given.adapted.a.detach();
  const at::Tensor loss = given.one_node(given.x).sum();
  const Tensors of{given.adapted.b};
  expect_near(torch::autograd::grad({loss}, of),
              torch::autograd::grad({given.by_operators(given.x).sum()}, of), 1e-13, "of B");
}

TEST(AdaptedProduct, UnderAutocastComputesInItsType) {
  for (const Case& c : kCases) {
    if (c.dtype != at::kFloat && c.dropout == 0) continue;
    Case single = c;
    single.dtype = at::kFloat;
    const Given given(single);
    const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    const at::Tensor found = given.one_node(given.x), wanted = given.by_operators(given.x);
    EXPECT_EQ(found.scalar_type(), at::kBFloat16);
    expect_near({found}, {wanted}, 2e-2, c.name);
    const auto mine = torch::autograd::grad({found.to(at::kFloat).sum()}, given.inputs());
    for (const at::Tensor& gradient : mine) EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    expect_near(mine, torch::autograd::grad({wanted.to(at::kFloat).sum()}, given.inputs()), 2e-2,
                c.name);
  }
}

TEST(AdaptedProduct, IsLeftToOperatorsWhereItCannotBe) {
  const Given given(kCases[0]);
  AdaptedMatrix trains = given.adapted;
  trains.matrix = trains.matrix.detach().clone().requires_grad_();
  EXPECT_FALSE(adapted_product(given.x, trains).defined());
  AdaptedMatrix biased = given.adapted;
  biased.bias = biased.bias.detach().clone().requires_grad_();
  EXPECT_FALSE(adapted_product(given.x, biased).defined());
  AdaptedMatrix half = given.adapted;
  half.matrix = half.matrix.to(at::kBFloat16);
  EXPECT_FALSE(adapted_product(given.x, half).defined());
  EXPECT_TRUE(adapted_product(given.x, given.adapted).defined());
}

/// Forwards and backwards, as a graph and in a replay.
TEST(AdaptedProduct, IsRecordedAndReplayedBitForBit) {
  for (const Case& c : kCases) {
    const Given given(c);
    const auto x = [&] { return at::randn({2, 5, 7}, at::TensorOptions(c.dtype)); };
    const auto function = [&](const Tensors& in) -> Tensors {
      const at::Tensor of_x = in[0].detach().clone().requires_grad_();
      const at::Tensor y = adapted_product(of_x, given.adapted);
      y.square().sum().backward();
      return {y.detach(), of_x.grad()};
    };
    test::Subject subject{.function = function,
                          .inputs = {x()},
                          .other_inputs = {x()},
                          .state = {{"a", given.adapted.a}, {"b", given.adapted.b}}};
    subject.state.push_back({"matrix", given.adapted.matrix});
    if (given.adapted.bias.defined()) subject.state.push_back({"bias", given.adapted.bias});
    SCOPED_TRACE(c.name);
    test::expect_equals_eager(subject);
  }
}

TEST(AdaptedProduct, KeepsNothingOfTheSizeOfItsResult) {
  const auto options = at::TensorOptions(at::kFloat);
  const at::Tensor x = at::randn({1000, 64}, options).requires_grad_();
  const AdaptedMatrix adapted{.matrix = at::randn({512, 64}, options),
                              .bias = {},
                              .a = at::randn({4, 64}, options).requires_grad_(),
                              .b = at::randn({512, 4}, options).requires_grad_()};
  const int64_t of_result = int64_t{1000} * 512 * 4;
  const test::PeakMemory memory;
  const at::Tensor y = adapted_product(x, adapted);
  EXPECT_LT(test::PeakMemory::bytes(), of_result * 11 / 10);
  EXPECT_GE(test::PeakMemory::bytes(), of_result);
}

}  // namespace
}  // namespace levin::models::adapted_product_tests
