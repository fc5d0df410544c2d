#include "levin/base/error.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "levin/base/check.h"

namespace {

TEST(Error, CarriesIdTextAndPlace) {
  try {
    LEVIN_FAIL("base.test", "got {}, wanted {}", 1, 2);
  } catch (const levin::Error& error) {
    EXPECT_EQ(error.id(), "base.test");
    EXPECT_STREQ(error.what(), "base.test: got 1, wanted 2");
    EXPECT_NE(error.where().find("error_test.cpp:"), std::string::npos);
    EXPECT_EQ(error.rank(), 0);
  }
}

TEST(Error, NamesTheRankInARunOfSeveral) {
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "4", 1);
  const levin::Error error("base.test", "broken");
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_STREQ(error.what(), "base.test: broken [rank 3]");
}

TEST(Error, CheckThrowsOnlyWhenTheConditionIsFalse) {
  EXPECT_NO_THROW([] { LEVIN_CHECK(1 < 2, "base.test", "never"); }());
  EXPECT_THROW([] { LEVIN_CHECK(2 < 1, "base.test", "always"); }(), levin::Error);
}

/// In a thread, where no test catches it.
void throw_uncaught(const std::function<void()>& throws) { std::thread(throws).join(); }

TEST(ErrorDeathTest, UncaughtEndsTheProcessWithItsTextAndCodeOne) {
  EXPECT_EXIT(throw_uncaught([] { throw levin::Error("base.test", "got 1, wanted 2"); }),
              testing::ExitedWithCode(1), "^error: base.test: got 1, wanted 2\n$");
}

TEST(ErrorDeathTest, OtherExceptionsEndItAsEver) {
  EXPECT_EXIT(
      {
        const levin::Error caught("base.test", "one that was caught");
        throw_uncaught([] { throw std::runtime_error("not levin's"); });
      },
      testing::KilledBySignal(SIGABRT), "not levin's");
}

}  // namespace
