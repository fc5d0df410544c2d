// What torch.export took for granted of the inputs' sizes: guards_code.
#include "levin/interchange/program/guard.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/log_sink.h"
#include "levin/interchange/load_exported.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::guards {
namespace {

using interchange::Guard;
using interchange::GuardSource;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// x.size(0) is a, x.size(1) is b, y.size(0) is 3; nothing else is known.
std::optional<Guard> parsed(std::string_view text) {
  return Guard::parse(text, [](const GuardSource& source) -> std::optional<std::string> {
    if (source.text() == "x.size(0)") return "a";
    if (source.text() == "x.size(1)") return "b";
    if (source.text() == "pair.1.stride(2)") return "c";
    if (source.text() == "y.storage_offset()") return "d";
    if (source.text() == "n") return "e";
    if (source.text() == "y.size(0)") return "3";
    return std::nullopt;
  });
}

TEST(Guard, HoldsAsPythonsComparisonDoes) {
  struct Row {
    const char* text;
    bool holds;
  };
  // a is 7, b is 2, c is 4, d is 0, e is -1. The values are Python's.
  const interchange::Symbols symbols = {{"a", 7}, {"b", 2}, {"c", 4}, {"d", 0}, {"e", -1}};
  const std::vector<Row> rows = {
      {"L['x'].size()[0] == L['x'].size()[1]", false},
      {"L['x'].size()[0] != L['x'].size()[1]", true},
      {"(L['x'].size()[0] % 2) == 0", false},
      {"(L[\"x\"].size()[1] % 2) == 0", true},
      {"2 <= L['x'].size()[0] <= 7", true},
      {"2 <= L['x'].size()[0] < 7", false},
      {"L['x'].size()[0] >= 2*L['y'].size()[0]", true},
      {"(-6)*(L['x'].size()[0] // 2) + 6*L['x'].size()[0] > 24", false},
      {"max(L['x'].size()[1], 3) == 3 and L['n'] < 0", true},
      {"min(L['x'].size()[1], 3) == 2 and L['n'] >= 0", false},
      {"L['pair'][1].stride()[2] == 4", true},
      {"L['y'].storage_offset() == 0", true},
      {"L['x'].size()[0] // L['y'].storage_offset() == 0", false},  // Python throws
  };
  for (const Row& row : rows) {
    const auto guard = parsed(row.text);
    ASSERT_TRUE(guard.has_value()) << row.text;
    EXPECT_EQ(guard->holds(symbols), row.holds) << row.text;
  }
}

TEST(Guard, IsNotReadWhereItIsNoComparisonOfKnownNumbers) {
  for (const char* text :
       {"", "L['x'].size()[0]", "L['z'].size()[0] == 1", "L['x'].size()[9] == 1",
        "L['x'].size()[0] == 1 or L['x'].size()[1] == 1", "L['x'].size()[0] / 2 == 1",
        "math.isnan(L['n'])", "odd(L['n'], 2) == 1", "L['x'.size()[0] == 1", "L['x'].size()[ == 1",
        "not (L['x'].size()[0] == 1)", "L[", "L['x'].dtype == 1"}) {
    EXPECT_FALSE(parsed(text).has_value()) << text;
  }
  EXPECT_FALSE(parsed("L['n'] == " + std::string(10'001, '1')).has_value());
  EXPECT_FALSE(parsed(std::string(1000, '(') + "L['n'] == 1").has_value());
}

TEST(Guard, SaysNothingWhereBothSidesAreTheSame) {
  EXPECT_TRUE(parsed("L['x'].size()[0] == L['x'].size()[0]")->is_trivial());
  EXPECT_TRUE(parsed("L['y'].size()[0] == 3")->is_trivial());
  EXPECT_FALSE(parsed("L['x'].size()[0] == L['x'].size()[1]")->is_trivial());
  EXPECT_FALSE(parsed("L['x'].size()[0] <= L['x'].size()[0]")->is_trivial());
}

/// x * 2, whose rows and columns are dynamic, with guards.
std::shared_ptr<ExportedModule> guarded(const json& guards) {
  SmallProgram program;
  program.input("x", meta_of({-1, -1}));
  program.graph["tensor_values"]["x"]["sizes"][1] = symbol_named("s1");
  program.node("torch.ops.aten.add.Tensor",
               {{"self", tensor_named("x")}, {"other", tensor_named("x")}}, "y");
  program.output("y");
  json text = program.text();
  text["guards_code"] = guards;
  const Scratch scratch;
  program.write(scratch / "net.pt2", text.dump());
  return load_exported(scratch / "net.pt2");
}

TEST(Guard, ThatACallBreaksIsAnErrorWithTheSizes) {
  const auto net = guarded({"(L['x'].size()[0] % 2) == 0", "L['x'].size()[1] <= L['x'].size()[0]"});
  const auto told = [&](int64_t rows, int64_t columns) {
    return error_of([&] { net->forward(at::ones({rows, columns})); });
  };
  EXPECT_EQ(told(4, 3), "no error");
  EXPECT_THAT(told(5, 3),
              AllOf(StartsWith("interchange.input: "),
                    HasSubstr("exported for sizes with (x.size(0) % 2) == 0, but x.size(0) is 5")));
  EXPECT_THAT(told(4, 6), HasSubstr("x.size(1) <= x.size(0), but x.size(1) is 6, x.size(0) is 4"));
}

TEST(Guard, ThatLevinCannotReadIsNamedWhenTheProgramIsLoaded) {
  std::vector<std::string> warnings;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { warnings.emplace_back(text); });
  const auto net = guarded({"L['x'].is_cuda == 1", "L['x'].size()[0] != 4"});
  log::set_sink(before);
  EXPECT_THAT(warnings, ::testing::ElementsAre(AllOf(HasSubstr("levin does not check"),
                                                     HasSubstr("L['x'].is_cuda == 1"))));
  EXPECT_THAT(error_of([&] { net->forward(at::ones({4, 3})); }), HasSubstr("x.size(0) != 4"));
  EXPECT_EQ(error_of([&] { net->forward(at::ones({5, 3})); }), "no error");
}

}  // namespace
}  // namespace levin::test::guards
