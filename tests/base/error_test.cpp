#include "levin/base/error.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
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

TEST(Error, EscapesControlCharactersOfWhateverCameIn) {
  const levin::Error error("test.foreign", "the file holds '\x1b]0;title\x07'\nand more");
  EXPECT_EQ(error.text(), "the file holds '\\x1b]0;title\\x07'\nand more");
  EXPECT_NE(std::string(error.what()).find("\\x1b]0;title\\x07"), std::string::npos);
  EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
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

/// As c10::Error: what it says, then the frames.
struct WithFrames : std::runtime_error {
  WithFrames()
      : std::runtime_error("shapes (4x3 and 5x2)\nException raised from f:\nframe #0: g") {}
};

/// As the Trainer lets an exception of a step pass.
void pass_through_a_run() {
  const levin::detail::LastWords engine(levin::detail::LastWords::Of::kEngine);
  std::thread([] {
    try {
      throw WithFrames();
    } catch (const std::exception&) {
      levin::detail::note_place("epoch 3, batch 12");
      throw;
    }
  }).join();
}

TEST(ErrorDeathTest, OfAnEngineAnyExceptionIsOneLineWithItsPlace) {
  EXPECT_EXIT(pass_through_a_run(), testing::ExitedWithCode(1),
              "^error: shapes \\(4x3 and 5x2\\) \\[epoch 3, batch 12\\] \\(LEVIN_FRAMES=1 shows "
              "where it was thrown\\)\n$");
  EXPECT_EXIT(
      {
        setenv("RANK", "1", 1);
        setenv("WORLD_SIZE", "2", 1);
        pass_through_a_run();
      },
      testing::ExitedWithCode(1), "\\[rank 1, epoch 3, batch 12\\]");
}

TEST(ErrorDeathTest, FramesAreShownOnRequest) {
  EXPECT_EXIT(
      {
        setenv("LEVIN_FRAMES", "1", 1);
        pass_through_a_run();
      },
      testing::KilledBySignal(SIGABRT), "frame #0: g");
}

[[noreturn]] void own_ending() {
  std::fputs("the program's own ending\n", stderr);
  std::_Exit(42);
}

TEST(ErrorDeathTest, AProgramsOwnHandlerHearsOfWhatIsNotLevins) {
  EXPECT_EXIT(
      {
        std::set_terminate(own_ending);
        pass_through_a_run();
      },
      testing::ExitedWithCode(42), "the program's own ending");
}

TEST(LastWords, PutBackTheHandlerThereWas) {
  const auto before = std::set_terminate(own_ending);
  {
    const levin::detail::LastWords outer;
    EXPECT_NE(std::get_terminate(), own_ending);
    {
      const levin::Error error("base.test", "caught");
      const levin::Error copy = error;  // NOLINT
    }
    EXPECT_NE(std::get_terminate(), own_ending);
  }
  EXPECT_EQ(std::get_terminate(), own_ending);
  try {
    throw levin::Error("base.test", "caught");
  } catch (const levin::Error&) {
    EXPECT_NE(std::get_terminate(), own_ending);
  }
  EXPECT_EQ(std::get_terminate(), own_ending);
  {
    const levin::detail::LastWords outer;
    std::set_terminate(before);  // the program's later wish stays
  }
  EXPECT_EQ(std::get_terminate(), before);
}

}  // namespace
