#include "levin/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace {

using levin::make_strategy;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Strategy, AutoIsSingleInARunOfOneProcess) {
  EXPECT_EQ(make_strategy("auto", {})->name(), "single");
}

TEST(Strategy, EveryListedNameIsMadeUnderThatName) {
  EXPECT_THAT(levin::strategy_names(), Contains("single"));
  for (const std::string& name : levin::strategy_names()) {
    if (name == "xla") continue;  // wants its device
    EXPECT_EQ(make_strategy(name, {})->name(), name);
  }
}

TEST(Strategy, AnUnknownNameIsAnErrorThatListsThoseThereAre) {
  for (const char* name : {"", "dpp", "Single", "single "}) {
    EXPECT_THAT(error_of([&] { make_strategy(name, {}); }),
                StartsWith("strategy.name: got '" + std::string(name) + "', wanted auto or single"))
        << name;
  }
}

TEST(Strategy, AMisspeltNameIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(error_of([] { make_strategy("signle", {}); }), EndsWith("did you mean 'single'?"));
  EXPECT_THAT(error_of([] { make_strategy("atuo", {}); }), EndsWith("did you mean 'auto'?"));
}

TEST(Strategy, ANameLikeNoOtherIsNotGuessedAt) {
  EXPECT_THAT(error_of([] { make_strategy("deepspeed", {}); }),
              AllOf(HasSubstr("strategy.name"), Not(HasSubstr("did you mean"))));
}

}  // namespace
