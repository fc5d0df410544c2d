#include "levin/interchange/program/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace levin::interchange::expressions {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Row {
  const char* text;
  std::optional<int64_t> value;
};

// s0 is 5, s1 is -3. The values are Python's.
TEST(Expression, HasPythonsValueInEitherSpelling) {
  const Symbols symbols = {{"s0", 5}, {"s1", -3}};
  const std::vector<Row> rows = {
      {"7", 7},
      {"s0", 5},
      {"Symbol('s0', positive=True, integer=True)", 5},
      {"Integer(-4)", -4},
      {"Add(Symbol('s0', integer=True), Integer(1))", 6},
      {"Mul(Integer(2), Symbol('s0'))", 10},
      {"2*s0 + 1", 11},
      {"2*(s0 + 1)", 12},
      {"s0**2 - 1", 24},
      {"-s0**2", -25},
      {"s1//2", -2},
      {"FloorDiv(Symbol('s1'), Integer(2))", -2},
      {"CeilDiv(s1, 2)", -1},
      {"s1 % 4", 1},
      {"Mod(s0, 3)", 2},
      {"CleanDiv(s0, 5)", 1},
      {"CleanDiv(s0, 2)", std::nullopt},
      {"Max(1, s0, 3)", 5},
      {"Min(1, s0, s1)", -3},
      {"s2 + 1", std::nullopt},
      {"Unknown(s0, 1)", std::nullopt},
      {"s0 // 0", std::nullopt},
      {"9223372036854775807 + s0", std::nullopt},
      {"(-9223372036854775807 - 1) // -1", std::nullopt},
      {"2**64", std::nullopt},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(Expression::parse(row.text).value(symbols), row.value) << row.text;
  }
}

TEST(Expression, IsSolvedForTheOneSymbolThatIsMissing) {
  const auto solved = [](const char* text, int64_t size, const Symbols& symbols = {}) {
    const auto found = Expression::parse(text).solve(size, symbols);
    return found ? found->first + "=" + std::to_string(found->second) : "none";
  };
  EXPECT_EQ(solved("s0", 4), "s0=4");
  EXPECT_EQ(solved("2*s0", 8), "s0=4");
  EXPECT_EQ(solved("2*s0", 7), "none");
  EXPECT_EQ(solved("3*s0 + 1", 13), "s0=4");
  EXPECT_EQ(solved("s0 + s1", 9, {{"s1", 4}}), "s0=5");
  EXPECT_EQ(solved("s0 + s1", 9), "none");
  EXPECT_EQ(solved("s0**2", 16), "none");  // it is not linear
  EXPECT_EQ(solved("7", 7), "none");
}

TEST(Expression, NamesItsSymbols) {
  EXPECT_THAT(Expression::parse("Add(Mul(2, s0), s1, s0)").symbols(), ElementsAre("s0", "s1"));
  EXPECT_EQ(Expression::parse("Mul(Integer(2), Add(s0, 1))").text(), "2*(s0 + 1)");
}

TEST(Expression, ThatIsNoneIsAnErrorThatShowsIt) {
  std::string deep(5000, '(');
  for (const std::string& text :
       {std::string(""), std::string("2*"), std::string("s0 +"), std::string("f(1"),
        std::string("Symbol('s0'"), std::string("1 2"), std::string("99999999999999999999"),
        std::string("s0 ; rm"), deep}) {
    EXPECT_THAT(test::error_of([&] { Expression::parse(text); }),
                HasSubstr("interchange.archive: levin cannot parse the size '"))
        << text.substr(0, 30);
  }
}

}  // namespace
}  // namespace levin::interchange::expressions
