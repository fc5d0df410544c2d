#include "levin/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "levin/base/awake.h"

namespace {

namespace log = levin::log;

TEST(Log, GoesToTheProgramsSinkAndBack) {
  std::vector<std::string> heard;
  const auto before =
      log::set_sink([&](log::Level, std::string_view text) { heard.emplace_back(text); });
  EXPECT_FALSE(before);
  log::warn("{} workers", 3);
  log::debug("not at this level");
  EXPECT_EQ(heard, (std::vector<std::string>{"3 workers"}));
  EXPECT_TRUE(log::set_sink({}));
  testing::internal::CaptureStderr();
  log::error("to stderr");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "levin error: to stderr\n");
  EXPECT_EQ(heard.size(), 1U);
}

TEST(AwakeTime, CountsNoStretchInWhichNobodyLooked) {
  levin::detail::AwakeTime waited;
  const timespec pause = {1, 500'000'000};
  ::nanosleep(&pause, nullptr);
  EXPECT_EQ(waited.look(), std::chrono::seconds(1));
  EXPECT_TRUE(waited.slept());
  // A busy machine may keep this thread from its next look too: that is the same again.
  const bool was_awake = waited.look() < std::chrono::seconds(2);
  EXPECT_EQ(waited.slept(), !was_awake);
}

}  // namespace
