// A console that is read late, or by nobody.
#include "levin/launch/node/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "levin/base/log.h"
#include "tests/launch/launcher.h"
#include "tests/support/child_process.h"

namespace {

using namespace levin::test;  // NOLINT
using levin::launch::Console;
using ::testing::HasSubstr;

/// `levin run` whose stdout and stderr are one pipe.
struct Piped {
  pid_t pid = -1;
  int read_end = -1;

  Piped(const Scratch& scratch, const Words& words) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end = ends[0];
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const int number : {1, 2}) ::dup2(ends[1], number);
      if (::chdir(scratch.str().c_str()) != 0) ::_exit(99);
      become_levin_run(words);
    }
    ::close(ends[1]);
  }
  ~Piped() {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::close(read_end);
  }
  int wait(double idle_s = 60) {
    int status = 0;
    if (!soon([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, idle_s)) return -1000;
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string read_all() const {
    std::string text;
    std::vector<char> part(1 << 16);
    for (ssize_t count = 0; (count = ::read(read_end, part.data(), part.size())) > 0;) {
      text.append(part.data(), static_cast<size_t>(count));
    }
    return text;
  }
};

class Unread : public ::testing::TestWithParam<const char*> {};

TEST_P(Unread, ASignalLetsTheRanksSave) {
  const Scratch scratch;
  const std::string line(500, 'x');
  for (const char* stream : {"1", "2"}) {
    for (const char* mark : {"0.saved", "1.saved", "0.up", "1.up"}) {
      std::filesystem::remove(scratch / mark);
    }
    const auto program = script(scratch, "rank.sh",
                                "trap 'touch $RANK.saved; exit 143' TERM; touch $RANK.up; "
                                "while :; do echo " +
                                    line + " >&" + stream + "; done");
    Piped job(scratch, {"-n", GetParam(), "--shutdown-timeout", "100000", program});
    const std::string last = GetParam() == std::string("1") ? "0" : "1";
    ASSERT_TRUE(soon([&] {
      return std::filesystem::exists(scratch / "0.up") &&
             std::filesystem::exists(scratch / (last + ".up"));
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // until all is full
    ::kill(job.pid, SIGTERM);
    EXPECT_EQ(job.wait(), 143);
    EXPECT_TRUE(std::filesystem::exists(scratch / "0.saved"));
    EXPECT_TRUE(std::filesystem::exists(scratch / (last + ".saved")));
  }
}

INSTANTIATE_TEST_SUITE_P(Console, Unread, ::testing::Values("1", "2"));

TEST(ConsoleOfALauncher, ALateReaderGetsAll) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh",
             "i=0; while [ $i -lt 30000 ]; do echo "
             "'a line of this length makes a few megabytes of them all, in the end "
             "more than fits' $i; i=$((i+1)); done");
  Piped job(scratch, {"-n", "1", program});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::string text = job.read_all();
  EXPECT_EQ(std::ranges::count(text, '\n'), 30000);
  EXPECT_THAT(text, HasSubstr("fits 29999\n"));
  EXPECT_EQ(job.wait(), 0);
}

TEST(ConsoleOfALauncher, SaysHowMuchItDropped) {
  EXPECT_EQ(run_child([]() -> int {
              int ends[2];
              if (::pipe2(ends, O_CLOEXEC) != 0) return 1;
              for (const int number : {1, 2}) ::dup2(ends[1], number);
              ::close(ends[1]);
              constexpr size_t kPiece = 100'000, kPieces = 30;
              const std::string piece = std::string(kPiece - 1, 'x') + "\n";
              std::string text;
              std::thread reader;
              {
                Console console;
                console.hurry();
                for (size_t i = 0; i < kPieces; ++i) console.write(STDOUT_FILENO, piece);
                reader = std::thread([&] {
                  std::vector<char> part(1 << 16);
                  for (ssize_t count = 0;
                       (count = ::read(ends[0], part.data(), part.size())) > 0;) {
                    text.append(part.data(), static_cast<size_t>(count));
                  }
                });
                console.flush(nullptr);
                levin::log::error("a line of the log");
              }
              const int nothing = ::open("/dev/null", O_WRONLY);
              for (const int number : {1, 2}) ::dup2(nothing, number);
              reader.join();
              const size_t note = text.find("nobody read the console: ");
              if (note == std::string::npos) return 2;
              const size_t dropped = std::stoul(text.substr(note + 25));
              const auto kept = static_cast<size_t>(std::ranges::count(text, 'x'));
              if (dropped % kPiece != 0 || kept != (kPiece - 1) * (kPieces - dropped / kPiece)) {
                return 3;
              }
              return text.find("levin error: a line of the log\n") == std::string::npos ? 4 : 0;
            }),
            0);
}

TEST(ConsoleOfALauncher, LeavesTheProgramsSinkAlone) {
  std::string heard;
  levin::log::set_sink([&](levin::log::Level, std::string_view text) { heard += text; });
  {
    const Console console;
    levin::log::error("one");
  }
  levin::log::error("two");
  levin::log::set_sink({});
  EXPECT_EQ(heard, "onetwo");
}

}  // namespace
