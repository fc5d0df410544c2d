// Random numbers of the device: their distributions, and that they are drawn anew.
#include "tests/xla/on_both_devices.h"

namespace {

using levin::test::xla_runtime;
constexpr int64_t kCount = 100'000;

at::TensorOptions on_xla(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions(dtype).device(xla_runtime().device());
}

/// Counts what a draw gives on the host, in f64.
at::Tensor read(const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); }

/// Each of the bins is as likely: chi-square's mean is bins - 1 and its deviation sqrt(2 (bins -
/// 1)).
void expect_even(const at::Tensor& shares, int64_t bins) {
  const at::Tensor counts = at::histc(shares, bins, 0, 1);
  const double expected = static_cast<double>(shares.numel()) / static_cast<double>(bins);
  const double chi_square = ((counts - expected).square() / expected).sum().item<double>();
  const auto freedom = static_cast<double>(bins - 1);
  EXPECT_LT(std::abs(chi_square - freedom), 5 * std::sqrt(2 * freedom));
}

void expect_moments(const at::Tensor& draws, double mean, double deviation) {
  const auto count = static_cast<double>(draws.numel());
  EXPECT_NEAR(draws.mean().item<double>(), mean, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(draws.std().item<double>(), deviation, 0.03 * deviation);
}

class RandomOnXla : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { before_ = xla_runtime().report().host_fallbacks; }
  void TearDown() override { EXPECT_EQ(xla_runtime().report().host_fallbacks, before_); }

 private:
  int64_t before_ = 0;
};

TEST_P(RandomOnXla, UniformIsEvenFromZeroToBelowOne) {
  torch::manual_seed(1);
  const at::Tensor u = read(at::rand({kCount}, on_xla(GetParam())));
  EXPECT_GE(u.min().item<double>(), 0.0);
  EXPECT_LT(u.max().item<double>(), 1.0);
  expect_even(u, 64);
}

TEST_P(RandomOnXla, NormalHasItsMomentsAndQuantiles) {
  torch::manual_seed(2);
  const at::Tensor z = read(at::empty({kCount}, on_xla(GetParam())).normal_(3, 2));
  expect_moments(z, 3, 2);
  if (GetParam() == at::kFloat || GetParam() == at::kDouble) {
    expect_even(at::special_ndtr((z - 3) / 2), 50);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RandomOnXla,
                         testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf));

TEST_F(RandomOnXla, BernoulliHasItsShare) {
  torch::manual_seed(3);
  const at::Tensor by_number = read(at::empty({kCount}, on_xla()).bernoulli_(0.3));
  expect_moments(by_number, 0.3, std::sqrt(0.21));
  const at::Tensor p = at::tensor({0.0F, 0.2F, 1.0F}).to(xla_runtime().device());
  const at::Tensor by_tensor = read(at::bernoulli(p.unsqueeze(1).expand({3, kCount})));
  EXPECT_EQ(by_tensor.select(0, 0).sum().item<double>(), 0);
  EXPECT_EQ(by_tensor.select(0, 2).sum().item<double>(), kCount);
  expect_moments(by_tensor.select(0, 1), 0.2, 0.4);
}

TEST_F(RandomOnXla, DropoutKeepsItsShareAndItsMean) {
  torch::manual_seed(4);
  at::Tensor x = at::ones({kCount}, on_xla()).requires_grad_();
  const at::Tensor y = at::dropout(x, 0.25, /*train=*/true);
  y.sum().backward();
  const at::Tensor kept = read(y.detach());
  expect_moments((kept > 0).to(at::kDouble), 0.75, std::sqrt(0.1875));
  EXPECT_TRUE(kept.eq(0).logical_or(kept.sub(4.0 / 3).abs() < 1e-6).all().item<bool>());
  EXPECT_TRUE(read(x.grad()).equal(kept));
  const auto [whole, mask] = at::native_dropout(x.detach(), 0.25, true);
  EXPECT_TRUE(read(whole).sub(read(mask) * (4.0 / 3)).abs().max().item<double>() < 1e-6);
}

TEST_F(RandomOnXla, IntegersAreEvenWithinTheirBounds) {
  torch::manual_seed(5);
  const at::Tensor dice = read(at::randint(-3, 7, {kCount}, on_xla(at::kLong)));
  EXPECT_EQ(dice.min().item<double>(), -3);
  EXPECT_EQ(dice.max().item<double>(), 6);
  expect_even((dice + 3.5) / 10, 10);
  const at::Tensor any = read(at::empty({kCount}, on_xla(at::kLong)).random_());
  expect_even(any / 9223372036854775808.0, 20);
  const at::Tensor floats = read(at::empty({1000}, on_xla()).random_(0, 5));
  EXPECT_TRUE(floats.eq(floats.floor()).all().item<bool>());
}

TEST_F(RandomOnXla, ExponentialsGeometricsAndOthersHaveTheirMoments) {
  torch::manual_seed(6);
  expect_moments(read(at::empty({kCount}, on_xla()).exponential_(2)), 0.5, 0.5);
  const at::Tensor tries = read(at::empty({kCount}, on_xla()).geometric_(0.25));
  expect_moments(tries, 4, std::sqrt(12.0));
  EXPECT_EQ(tries.min().item<double>(), 1);
  expect_moments(read(at::empty({kCount}, on_xla()).log_normal_(0, 0.25)).log(), 0, 0.25);
  const at::Tensor wide = read(at::empty({kCount}, on_xla()).cauchy_(1, 2));
  EXPECT_NEAR(wide.median().item<double>(), 1, 0.05);
}

TEST_F(RandomOnXla, APermutationHasEachPlaceOnce) {
  torch::manual_seed(7);
  const at::Tensor order = at::randperm(1000, on_xla(at::kLong)).cpu();
  EXPECT_TRUE(std::get<0>(order.sort()).equal(at::arange(1000)));
  EXPECT_FALSE(order.equal(at::arange(1000)));
}

TEST_F(RandomOnXla, CategoriesAreDrawnByTheirShares) {
  torch::manual_seed(8);
  const at::Tensor p = at::tensor({1.0F, 0.0F, 3.0F, 4.0F, 0.0F});
  const at::Tensor draws = at::multinomial(p.to(xla_runtime().device()), kCount, true).cpu();
  const at::Tensor shares = at::bincount(draws, {}, 5).to(at::kDouble) / kCount;
  EXPECT_LT((shares - p / 8).abs().max().item<double>(), 0.01);
  const at::Tensor rows = p.expand({500, 5}).to(xla_runtime().device());
  const at::Tensor each = std::get<0>(at::multinomial(rows, 3, false).cpu().sort(1));
  EXPECT_TRUE(each.equal(at::tensor({0, 2, 3}, at::kLong).expand({500, 3})));
}

TEST_F(RandomOnXla, DrawsAndRunsDifferAndASeedBringsThemBack) {
  const auto draw_two = [] {
    const at::Tensor first = at::randn({100}, on_xla());
    const at::Tensor second = at::randn({100}, on_xla());
    return std::pair(first.cpu(), second.cpu());
  };
  torch::manual_seed(9);
  const auto [first, second] = draw_two();
  const auto [third, fourth] = draw_two();
  EXPECT_FALSE(first.equal(second));
  EXPECT_FALSE(first.equal(third));
  EXPECT_FALSE(second.equal(fourth));
  torch::manual_seed(9);
  const auto [again, again_second] = draw_two();
  EXPECT_TRUE(first.equal(again));
  EXPECT_TRUE(second.equal(again_second));
}

TEST_F(RandomOnXla, ElementsDoNotDependOnEachOther) {
  torch::manual_seed(10);
  const at::Tensor z = read(at::randn({200, 500}, on_xla()));
  const at::Tensor rows = at::corrcoef(z.slice(0, 0, 20));
  EXPECT_LT((rows - at::eye(20, at::kDouble)).abs().max().item<double>(), 0.25);
  EXPECT_LT(at::corrcoef(at::stack({z.view({-1}).slice(0, 0, -1), z.view({-1}).slice(0, 1)}))
                .select(0, 0)
                .select(0, 1)
                .abs()
                .item<double>(),
            0.02);
}

TEST_F(RandomOnXla, RreluDrawsItsSlopes) {
  torch::manual_seed(11);
  at::Tensor x = at::full({kCount}, -2.0F, on_xla()).requires_grad_();
  const at::Tensor y = at::rrelu(x, 0.1, 0.3, /*training=*/true);
  y.sum().backward();
  const at::Tensor slopes = read(y.detach()) / -2;
  expect_even((slopes - 0.1) / 0.2, 20);
  EXPECT_LT((read(x.grad()) - slopes).abs().max().item<double>(), 1e-6);
}

}  // namespace
