#include "levin/observe/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <vector>

namespace {

using levin::ProgressLine;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// A pseudo-terminal, or a pipe, and what was written to it.
class Screen {
 public:
  explicit Screen(bool terminal, unsigned short columns = 100) {
    if (terminal) {
      winsize size{24, columns, 0, 0};
      EXPECT_EQ(::openpty(&reader_, &writer_, nullptr, nullptr, &size), 0);
    } else {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      reader_ = ends[0];
      writer_ = ends[1];
    }
    ::fcntl(reader_, F_SETFL, O_NONBLOCK);
  }
  ~Screen() {
    ::close(reader_);
    ::close(writer_);
  }

  levin::ProgressOptions options(double redraw_interval_s = 0) const {
    return {.fd = writer_, .redraw_interval_s = redraw_interval_s};
  }
  void resize(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    ::ioctl(writer_, TIOCSWINSZ, &size);
  }
  std::string read() {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(reader_, buffer, sizeof buffer)) > 0;) text.append(buffer, n);
    return text;
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
};

class Progress : public ::testing::Test {
 protected:
  Progress() { ::setenv("LC_ALL", "C", 1); }
  ~Progress() override { ::unsetenv("LC_ALL"); }
};

using OnATerminal = Progress;
using OffATerminal = Progress;

TEST_F(OnATerminal, DrawsLabelBarCountRateTimesAndValues) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("epoch 2/3", 8);
  screen.read();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(line.advance());
  line.draw({{"train_loss", 0.3123456}, {"val_acc", 0.88}});
  EXPECT_THAT(screen.read(),
              MatchesRegex("\repoch 2/3 =======-             3/8 [0-9.]+ it/s 0:00<0:00 "
                           "train_loss=0.3123 val_acc=0.88 *"));
}

TEST_F(OnATerminal, DrawsTheBarInUtf8WhereTheLocaleHasIt) {
  ::setenv("LC_ALL", "de_DE.UTF-8", 1);
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", 40, 3);
  const std::string full = "\xe2\x94\x81", half = "\xe2\x95\xb8";
  EXPECT_THAT(screen.read(), StartsWith("\rx " + full + half + std::string(18, ' ') + " 3/40 "));
}

TEST_F(OnATerminal, BeginsWithAnEmptyAndEndsWithAFullBar) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", 2);
  EXPECT_THAT(screen.read(), StartsWith("\rx " + std::string(20, ' ') + " 0/2 0:00"));
  line.advance();
  line.advance();
  line.draw({});
  EXPECT_THAT(screen.read(), StartsWith("\rx " + std::string(20, '=') + " 2/2 "));
}

TEST_F(OnATerminal, AnUnknownTotalHasNoBar) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", -1);
  line.advance();
  line.draw({});
  EXPECT_THAT(screen.read(), HasSubstr("\rx 1 "));
}

TEST_F(OnATerminal, ClipsToTheWidthAndFollowsItsChange) {
  for (const char* locale : {"C", "C.UTF-8"}) {
    ::setenv("LC_ALL", locale, 1);
    Screen screen(true, 60);
    ProgressLine line(screen.options());
    line.start("a label that is by itself longer than thirty columns", 10, 5);
    for (const unsigned short columns : {60, 30, 90, 1}) {
      screen.resize(columns);
      screen.read();
      line.draw({{"a_long_name_of_a_metric", 1}, {"another_long_name_of_a_metric", 2}});
      const std::string drawn = screen.read();
      const auto width =
          std::count_if(drawn.begin(), drawn.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_EQ(width, columns) << drawn;  // \r and all columns but the last
    }
  }
}

TEST_F(OnATerminal, AShorterLineWipesALongerOne) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", 10);
  line.draw({{"name_of_a_metric", 1}});
  const size_t longer = screen.read().rfind("=1") + 2;
  line.draw({});
  const std::string drawn = screen.read();
  EXPECT_THAT(drawn, EndsWith("0:00" + std::string(19, ' ')));
  EXPECT_GT(longer, 0u);
}

TEST_F(OnATerminal, ClearWipesOnceAndDrawBringsBack) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", 10);
  const size_t width = screen.read().size() - 1;
  line.clear();
  EXPECT_EQ(screen.read(), "\r" + std::string(width, ' ') + "\r");
  line.clear();
  EXPECT_EQ(screen.read(), "");
  line.draw({});
  EXPECT_THAT(screen.read(), StartsWith("\rx "));
}

TEST_F(OnATerminal, FinishLeavesItsText) {
  Screen screen(true);
  ProgressLine line(screen.options());
  line.start("x", 10);
  screen.read();
  line.finish("epoch 1/3: val_acc=0.9");
  EXPECT_THAT(screen.read(), MatchesRegex("\r +\repoch 1/3: val_acc=0.9\r\n"));
}

/// A clock that stands until it is told how far to go on.
struct TestClock {
  std::chrono::steady_clock::time_point time = {};
  void pass(double seconds) {
    time += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  levin::ProgressOptions of(levin::ProgressOptions options) {
    options.now = [this] { return time; };
    return options;
  }
};

TEST_F(OnATerminal, IsDueAtMostOncePerInterval) {
  Screen screen(true);
  TestClock clock;
  ProgressLine line(clock.of(screen.options(0.05)));
  line.start("x", -1);
  int due = 0;
  for (int millisecond = 0; millisecond < 220; ++millisecond) {
    clock.pass(0.001);
    if (!line.advance()) continue;
    ++due;
    line.draw({});
  }
  EXPECT_EQ(due, 4);
}

TEST_F(OnATerminal, DrawsEveryNthBatchAndTheLast) {
  Screen screen(true);
  TestClock clock;
  levin::ProgressOptions options = clock.of(screen.options(0.0));
  options.refresh_rate = 4;
  ProgressLine line(options);
  line.start("x", 10);
  std::vector<int> drawn;
  for (int batch = 1; batch <= 10; ++batch) {
    clock.pass(1.0);
    if (line.advance()) drawn.push_back(batch);
  }
  EXPECT_EQ(drawn, (std::vector<int>{4, 8, 10}));
}

TEST_F(OnATerminal, ARefreshRateOfZeroPrintsNothing) {
  Screen screen(true);
  levin::ProgressOptions options = screen.options();
  options.refresh_rate = 0;
  ProgressLine line(options);
  line.start("x", 2);
  EXPECT_FALSE(line.advance());
  line.draw({});
  line.end({});
  line.finish("epoch 1/3: val_acc=0.9");
  EXPECT_EQ(screen.read(), "");
  options.refresh_rate = -1;
  try {
    ProgressLine refused(options);
    ADD_FAILURE() << "a rate below 0";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), StartsWith("observe.progress: got refresh_rate = -1"));
  }
}

TEST_F(OnATerminal, EndLeavesTheBarIfAsked) {
  for (const bool leave : {false, true}) {
    Screen screen(true);
    TestClock clock;
    levin::ProgressOptions options = clock.of(screen.options());
    options.leave = leave;
    ProgressLine line(options);
    line.start("x", 2);
    clock.pass(1.0);
    line.advance();
    line.advance();
    screen.read();
    line.end({{"loss", 0.5}});
    const std::string left = screen.read();
    if (leave) {
      EXPECT_THAT(left, EndsWith("\rx ==================== 2/2 2.0 it/s 0:01<0:00 loss=0.5\r\n"));
    } else {
      EXPECT_THAT(left, MatchesRegex("\r +\r"));
    }
  }
}

TEST_F(OnATerminal, NoticesSoonWhenStepsTurnSlow) {
  Screen screen(true);
  TestClock clock;
  ProgressLine line(clock.of(screen.options(0.01)));
  line.start("x", -1);
  for (int i = 0; i < 1000; ++i) line.advance();
  int calls = 0;
  bool due = false;
  while (!due && calls < 1000) {
    clock.pass(0.011);
    due = line.advance();
    ++calls;
  }
  EXPECT_LE(calls, 16);
}

TEST_F(OnATerminal, RateLeavesOutWhatWasDoneBefore) {
  Screen screen(true);
  TestClock clock;
  ProgressLine line(clock.of(screen.options()));
  line.start("x", 2'000'000'000, 1'000'000'000);
  clock.pass(0.02);
  line.advance();
  line.draw({});
  EXPECT_THAT(screen.read(), HasSubstr(" 50.0 it/s "));
}

// Steps of a second; the clock is looked at in every sixth, a tenth of a minute.
TEST_F(OffATerminal, PrintsALineAMinuteWithStepRateAndValues) {
  Screen screen(false);
  TestClock clock;
  ProgressLine line(clock.of(screen.options()));
  line.start("epoch 1/3", 400);
  std::vector<int> at;
  for (int step = 1; step <= 200; ++step) {
    clock.pass(1);
    if (line.advance()) at.push_back(step);
    line.draw({{"loss", 0.5}});
  }
  EXPECT_EQ(at, (std::vector<int>{61, 121, 181}));
  EXPECT_EQ(screen.read(),
            "epoch 1/3 61/400 1.0 it/s 1:01<5:39 loss=0.5\n"
            "epoch 1/3 121/400 1.0 it/s 2:01<4:39 loss=0.5\n"
            "epoch 1/3 181/400 1.0 it/s 3:01<3:39 loss=0.5\n");
}

TEST_F(OffATerminal, OfStepsThatAreSlowerEachIsALine) {
  Screen screen(false);
  TestClock clock;
  ProgressLine line(clock.of(screen.options()));
  line.start("x", 2);
  for (int step = 0; step < 2; ++step) {
    clock.pass(90);
    EXPECT_TRUE(line.advance());
    line.draw({});
  }
  EXPECT_EQ(screen.read(), "x 1/2 90.00 s/it 1:30<1:30\nx 2/2 90.00 s/it 3:00<0:00\n");
}

TEST_F(OffATerminal, PrintsNoSuchLinesWhereTheyAreOff) {
  Screen screen(false);
  TestClock clock;
  levin::ProgressOptions options = screen.options();
  options.plain_interval_s = 0;
  ProgressLine line(clock.of(options));
  line.start("x", -1);
  for (int step = 0; step < 100; ++step) {
    clock.pass(90);
    EXPECT_FALSE(line.advance());
    line.draw({});
  }
  EXPECT_EQ(screen.read(), "");
}

TEST_F(OffATerminal, PrintsOnlyThePlainLine) {
  Screen screen(false);
  ProgressLine line(screen.options());
  line.start("epoch 1/3", 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(line.advance());
    line.draw({{"loss", 1}});
  }
  line.clear();
  EXPECT_EQ(screen.read(), "");
  line.finish("epoch 1/3: val_acc=0.9");
  EXPECT_EQ(screen.read(), "epoch 1/3: val_acc=0.9\n");
}

}  // namespace
