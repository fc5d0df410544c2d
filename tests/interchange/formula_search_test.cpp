// Numbers that several sizes gave, as formulas of them.
#include "levin/interchange/export/sizes/formula_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levin::test::formula_search {
namespace {

using interchange::FormulaSearch;
using interchange::Samples;
using interchange::SizeFormula;

/// Two dims, as export_program varies them.
std::vector<std::vector<int64_t>> points() {
  return {{4, 16}, {5, 16}, {3, 16}, {8, 16}, {4, 17}, {4, 15}, {4, 32}, {5, 32}, {5, 15}};
}

/// What the search makes of a function's values at the points, at a size it has not seen.
template <class Function>
std::optional<int64_t> at_new_size(const Function& function,
                                   std::span<const SizeFormula> candidates = {}) {
  FormulaSearch search(points());
  Samples samples;
  for (const auto& point : points()) samples.push_back(function(point[0], point[1]));
  const auto formula = search.find(samples, candidates);
  if (!formula) return std::nullopt;
  return formula->value(std::vector<int64_t>{7, 101});
}

TEST(FormulaSearch, FindsSumsProductsAndQuotients) {
  const auto check = [](const auto& function) {
    EXPECT_EQ(at_new_size(function), function(int64_t{7}, int64_t{101}));
  };
  check([](int64_t, int64_t) { return int64_t{5}; });
  check([](int64_t a, int64_t) { return a; });
  check([](int64_t a, int64_t) { return 3 * a - 2; });
  check([](int64_t a, int64_t) { return 1 - a; });
  check([](int64_t a, int64_t b) { return a * b; });
  check([](int64_t a, int64_t b) { return 12 * a * b; });
  check([](int64_t a, int64_t b) { return a + b; });
  check([](int64_t a, int64_t b) { return 2 * a * b - 3 * a + b + 4; });
  check([](int64_t a, int64_t) { return a * a; });
  check([](int64_t, int64_t b) { return b / 2; });
  check([](int64_t, int64_t b) { return (b + 1) / 2; });
  check([](int64_t, int64_t b) { return (b - 1) / 2; });
  check([](int64_t, int64_t b) { return 3 * b; });
}

TEST(FormulaSearch, BuildsOnWhatItFoundBefore) {
  FormulaSearch search(points());
  Samples half, flat;
  for (const auto& point : points()) {
    half.push_back((point[1] - 3) / 2 + 1);
    flat.push_back(6 * half.back() * point[0]);
  }
  const std::vector<SizeFormula> layer = {floor_div(SizeFormula::dim(1) + -3, 2) + 1};
  ASSERT_TRUE(search.find(half, layer));
  const auto formula = search.find(flat);
  ASSERT_TRUE(formula);
  EXPECT_EQ(formula->value(std::vector<int64_t>{2, 50}), 6 * 24 * 2);
}

TEST(FormulaSearch, TakesACandidateOnlyWhereItGivesTheNumbers) {
  const std::vector<SizeFormula> wrong = {SizeFormula::dim(0) + 1};
  EXPECT_EQ(at_new_size([](int64_t a, int64_t) { return a + 2; }, wrong), 9);
}

TEST(FormulaSearch, SaysWhereThereIsNoFormula) {
  EXPECT_EQ(at_new_size([](int64_t a, int64_t b) { return a > 4 ? b : a; }), std::nullopt);
  EXPECT_EQ(at_new_size([](int64_t a, int64_t) { return a % 3 == 0 ? a + 1 : a; }), std::nullopt);
  // These sizes would also give (b - 1) / 15.
  EXPECT_EQ(at_new_size([](int64_t, int64_t b) { return b / 16; }), std::nullopt);
}

TEST(FormulaSearch, FindsRealsThatAreTimesOrDividedByASize) {
  FormulaSearch search(points());
  const auto real = [&](const auto& function) {
    std::vector<double> samples;
    for (const auto& point : points()) {
      samples.push_back(function(static_cast<double>(point[0]), static_cast<double>(point[1])));
    }
    return search.find_real(samples);
  };
  const auto inverse = real([](double a, double) { return 1.0 / a; });
  ASSERT_TRUE(inverse);
  EXPECT_TRUE(inverse->is_divided);
  EXPECT_EQ(inverse->factor, 1.0);
  const auto scaled = real([](double, double b) { return 0.3 * b; });
  ASSERT_TRUE(scaled);
  EXPECT_FALSE(scaled->is_divided);
  EXPECT_DOUBLE_EQ(scaled->factor, 0.3);
  const auto mean = real([](double a, double b) { return static_cast<float>(1 / (a * b)); });
  ASSERT_TRUE(mean);
  EXPECT_EQ(mean->formula.value(std::vector<int64_t>{3, 5}), 15);
  EXPECT_FALSE(real([](double a, double) { return std::sqrt(a); }));
}

}  // namespace
}  // namespace levin::test::formula_search
