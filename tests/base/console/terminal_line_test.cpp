#include "levin/base/console/terminal_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "levin/base/log.h"

namespace {

using levin::detail::TerminalLine;

/// stderr is a terminal of so many columns for the time of this.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{24, columns, 0, 0};
    EXPECT_EQ(::openpty(&reader_, &writer_, nullptr, nullptr, &size), 0);
    ::fcntl(reader_, F_SETFL, O_NONBLOCK);
    before_ = ::dup(STDERR_FILENO);
    ::dup2(writer_, STDERR_FILENO);
  }
  ~Terminal() {
    ::dup2(before_, STDERR_FILENO);
    for (const int fd : {reader_, writer_, before_}) ::close(fd);
  }
  std::string read() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(reader_, buffer, sizeof buffer)) > 0;) text.append(buffer, n);
    return text;
  }

 private:
  int reader_ = -1, writer_ = -1, before_ = -1;
};

TEST(TerminalLine, ALogLineIsNotGluedToIt) {
  const Terminal terminal(20);
  TerminalLine& line = TerminalLine::of_stderr();
  line.draw("epoch 1 3/10", 12);
  EXPECT_EQ(terminal.read(), "\repoch 1 3/10");
  levin::log::warn("the batch is empty");
  EXPECT_EQ(terminal.read(), "\r            \rlevin warn: the batch is empty\r\n");
  levin::log::warn("and another");  // nothing is drawn by now
  EXPECT_EQ(terminal.read(), "levin warn: and another\r\n");
  line.draw("epoch 1 4/10", 12);
  EXPECT_EQ(terminal.read(), "\repoch 1 4/10");
  line.draw("short", 5);  // what stood there goes
  EXPECT_EQ(terminal.read(), "\rshort       ");
  line.wipe();
  line.wipe();
  EXPECT_EQ(terminal.read(), "\r     \r");
}

TEST(TerminalLine, IsWipedForTheProgramsOwnLogToo) {
  const Terminal terminal(20);
  std::string heard;
  levin::log::set_sink([&](levin::log::Level, std::string_view text) { heard += text; });
  TerminalLine::of_stderr().draw("epoch 1", 7);
  levin::log::warn("mine");
  levin::log::set_sink({});
  EXPECT_EQ(heard, "mine");
  EXPECT_EQ(terminal.read(), "\repoch 1\r       \r");
}

}  // namespace
