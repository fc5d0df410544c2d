// Sorting, medians, running products and extremes, searches, ranges.
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT

/// Ties, NaNs and infinities.
OperatorTensors unruly() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  return {at::tensor({3.0, nan, -1.0, 0.0, -0.0, infinite, -infinite, 3.0, 2.0, nan, 1.0, -1.0},
                     at::kDouble)
              .view({3, 4})};
}
OperatorTensors whole() {
  return {torch::randint(5, {4, 6}, at::kDouble), torch::randint(5, {3}, at::kLong)};
}
OperatorTensors ladder() {
  return {at::tensor({-1.0, 0.0, 0.5, 0.5, 2.0}, at::kDouble),
          at::tensor({-2.0, -1.0, 0.5, 1.0, 2.0, 3.0}, at::kDouble).view({2, 3}),
          at::tensor({4, 2, 0, 3, 1}, at::kLong)};
}

std::vector<OperatorCase> sorts() {
  const auto x = drawn({{3, 7}});
  std::vector<OperatorCase> cases = {
      CASE("Ascending", x, at::sort(t[0], 1), at::sort(t[0], 0)),
      CASE("Descending", x, at::sort(t[0], -1, true)),
      CASE("Argsort", x, at::argsort(t[0], 1, false)),
      CASE("Topk", x, at::topk(t[0], 3), at::topk(t[0], 2, 0, false)),
      CASE("Kthvalue", x, at::kthvalue(t[0], 3), at::kthvalue(t[0], 1, 0, true)),
      CASE("Median", x, at::median(t[0]), at::median(t[0], 1), at::median(t[0], 0, true)),
      CASE("Nanmedian", x, at::nanmedian(t[0]), at::nanmedian(t[0], 1)),
      CASE("Cumsum", x, at::cumsum(t[0], 1), at::cumsum(t[0], 0)),
      CASE("Cumprod", x, at::cumprod(t[0], 1), at::cumprod(t[0], 0)),
      CASE("Cummax", x, at::cummax(t[0], 1), at::cummin(t[0], 0)),
      CASE("Logcumsumexp", x, at::logcumsumexp(t[0], 1)),
      CASE("Logsumexp", x, at::logsumexp(t[0], {1}), at::logsumexp(t[0], {0, 1}, true)),
  };
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    if (cases[i].name == "Argsort") continue;
    OperatorCase more = cases[i];
    more.name += "Gradient";
    more.with_gradients = true;
    more.dtypes = kWide;
    cases.push_back(more);
    // Numbers drawn for f64 become equal in 16 bits, and then which one comes first is ATen's
    // choice.
    cases[i].dtypes = kWide;
  }
  return cases;
}

std::vector<OperatorCase> of_ties() {
  std::vector<OperatorCase> cases = {
      CASE("Stable", unruly, at::sort(t[0], true, 1, false),
           at::sort(t[0].view({-1}), true, 0, true)),
      CASE("StableWhole", whole, at::sort(t[0], true, 1, false), at::sort(t[0], true, 0, true)),
      CASE("Medians", unruly, at::median(t[0], 1), at::median(t[0]),
           std::get<0>(at::nanmedian(t[0], 1)), at::nanmedian(t[0])),
      CASE("Values", unruly, std::get<0>(at::topk(t[0], 2)), std::get<0>(at::kthvalue(t[0], 2))),
      CASE("Running", unruly, at::cummax(t[0], 1), at::cummin(t[0].view({-1}), 0)),
      CASE("RunningWhole", whole, at::cummax(t[0], 1), at::cummin(t[0], 0), at::cumsum(t[0], 1)),
      CASE("Extremes", unruly, at::max(t[0], 1), at::min(t[0], 1), at::argmax(t[0]),
           at::argmin(t[0], 1), at::amax(t[0], {1}), at::amin(t[0])),
      CASE("OfOne", drawn({{}}), at::sort(t[0]), at::cumsum(t[0], 0), at::median(t[0]),
           at::cummax(t[0], 0)),
      CASE("OfNone", drawn({{0, 3}}), at::sort(t[0], 1), at::cumsum(t[0], 0), at::cumprod(t[0], 1)),
      CASE("Exponents", unruly, at::logcumsumexp(at::nan_to_num(t[0], 0.0, 50.0, -50.0), 1),
           at::logsumexp(at::nan_to_num(t[0], -std::numeric_limits<double>::infinity(), 50.0,
                                        -std::numeric_limits<double>::infinity()),
                         {0})),
  };
  return cases;
}

std::vector<OperatorCase> searches() {
  std::vector<OperatorCase> cases = {
      CASE("Left", ladder, at::searchsorted(t[0], t[1])),
      CASE("Right", ladder, at::searchsorted(t[0], t[1], true, true)),
      CASE("OfRows", ladder, at::searchsorted(t[0].expand({2, 5}).contiguous(), t[1])),
      CASE("Bucketize", ladder, at::bucketize(t[1], t[0]), at::bucketize(t[1], t[0], false, true)),
      CASE("OfOne", ladder, at::searchsorted(t[0], 0.5)),
      CASE("InTheOrderOfASorter", ladder,
           at::searchsorted(t[0].index_select(0, t[2].argsort(-1, false)), t[1], false, false, {},
                            t[2])),
  };
  for (OperatorCase& of : cases) of.dtypes = kWide;
  return cases;
}

std::vector<OperatorCase> ranges() {
  std::vector<OperatorCase> cases = {
      CASE("Arange", drawn({{1}}), at::arange(5, t[0].options()),
           at::arange(2, 9, 3, t[0].options()), at::arange(7, 1, -2, t[0].options())),
      CASE("Full", drawn({{2}}), at::full({2, 3}, 1.5, t[0].options()), at::ones_like(t[0]),
           at::zeros({0, 2}, t[0].options()), t[0].new_full({2}, 3), at::full_like(t[0], -1),
           at::scalar_tensor(2.5, t[0].options())),
      CASE("Eye", drawn({{2}}), at::eye(3, t[0].options()), at::eye(2, 4, t[0].options())),
      CASE("FillInPlace", drawn({{2, 3}}),
           [&] {
             at::Tensor x = t[0].clone();
             x.select(0, 1).fill_(3);
             x.select(1, 0).zero_();
             x.select(1, 2).fill_(t[0].sum());
             return x;
           }()),
      CASE("Triangles", drawn({{2}}), at::tril_indices(3, 4, 1, t[0].options().dtype(at::kLong)),
           at::triu_indices(4, 3, -1, t[0].options().dtype(at::kLong))),
      CASE("EmptyIsZeros", drawn({{2}}), at::empty({2, 2}, t[0].options()).fill_(0).add_(1)),
  };
  for (OperatorCase& of : cases) of.dtypes = kNumbers;
  cases.push_back(CASE("ArangeOfFractions", drawn({{1}}), at::arange(1, 2, 0.25, t[0].options())));
  cases.push_back(CASE("Linspace", drawn({{2}}), at::linspace(-1, 2, 7, t[0].options()),
                       at::linspace(3, 1, 1, t[0].options()),
                       at::logspace(0, 2, 5, 10, t[0].options())));
  return cases;
}

class Sorting : public testing::TestWithParam<OperatorCase> {};
TEST_P(Sorting, EqualsAten) { expect_same_on_both(GetParam()); }

std::string sort_name(const testing::TestParamInfo<OperatorCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfNumbers, Sorting, testing::ValuesIn(sorts()), sort_name);
INSTANTIATE_TEST_SUITE_P(OfTies, Sorting, testing::ValuesIn(of_ties()), sort_name);
INSTANTIATE_TEST_SUITE_P(Searches, Sorting, testing::ValuesIn(searches()), sort_name);
INSTANTIATE_TEST_SUITE_P(Ranges, Sorting, testing::ValuesIn(ranges()), sort_name);

}  // namespace
