#include "levin/xla/device/compile/compile_watch.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <csignal>
#include <latch>
#include <mutex>
#include <thread>

#include "levin/base/log.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/xla/plugins.h"

namespace {

namespace log = levin::log;
using levin::test::error_of;
using levin::xla::watched;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CompileWatch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (levin::test::fake_pjrt().empty()) GTEST_SKIP() << "levin was built without XLA";
  }
  static levin::xla::pjrt::Executable compiled() {
    namespace pjrt = levin::xla::pjrt;
    return pjrt::Client(pjrt::Plugin(levin::test::fake_pjrt())).compile("");
  }
};

/// The lines of the log; tells whoever waits for them.
class Lines {
 public:
  Lines() {
    log::set_sink([this](log::Level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      heard_.emplace_back(text);
      changed_.notify_all();
    });
  }
  ~Lines() { log::set_sink({}); }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return heard_.size() >= count; });
  }
  std::vector<std::string> heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> heard_;
};

TEST_F(CompileWatch, GivesWhatWasCompiledAndSaysNothingOfIt) {
  Lines lines;
  EXPECT_EQ(watched(compiled, {.what = "7 operators"}).name(), "step");
  EXPECT_TRUE(lines.heard().empty());
}

TEST_F(CompileWatch, OfALongCompilationThereAreLinesUntilItEnds) {
  Lines lines;
  const auto made = watched(
      [&] {
        lines.wait_for(3);
        return compiled();
      },
      {.what = "7 operators", .line_interval_s = 0});
  EXPECT_EQ(made.name(), "step");
  EXPECT_GE(lines.heard().size(), 3U);
  EXPECT_THAT(lines.heard(),
              Each(AllOf(StartsWith("xla: compiling 7 operators, for "), HasSubstr(" s so far"))));
}

TEST_F(CompileWatch, PassesOnWhatTheCompilerThrows) {
  EXPECT_THAT(error_of([] {
                watched(
                    []() -> levin::xla::pjrt::Executable {
                      throw levin::Error("xla.compile", "no such operator");
                    },
                    {.what = "7 operators"});
              }),
              StartsWith("xla.compile: no such operator"));
}

int sigterm() { return SIGTERM; }

TEST_F(CompileWatch, ASignalEndsTheWaitAndTheCompilerIsLeftBehind) {
  std::latch told(1);
  const auto wait = [&told] {
    told.wait();
    return compiled();
  };
  EXPECT_THAT(error_of([&] { watched(wait, {.what = "7 operators", .stop_signal = &sigterm}); }),
              AllOf(StartsWith("xla.interrupted: got SIGTERM while 7 operators were compiled"),
                    HasSubstr("resume it from its last checkpoint")));
  EXPECT_TRUE(levin::xla::is_compiling());
  EXPECT_THAT(error_of([&] { watched(compiled, {.what = "8 operators"}); }),
              StartsWith("xla.interrupted: 8 operators are not compiled"));
  told.count_down();
  while (levin::xla::is_compiling()) std::this_thread::yield();
  EXPECT_EQ(watched(compiled, {.what = "8 operators"}).name(), "step");
}

}  // namespace
