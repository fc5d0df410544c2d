#include "levin/base/console/terminal_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace levin::detail {
namespace {

// One call, so that a line never shows half drawn and lines of several ranks do not mix.
void write_once(int fd, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

}  // namespace

// Never destroyed: threads may log while the program ends.
TerminalLine& TerminalLine::of_stderr() {
  static auto* line = new TerminalLine(STDERR_FILENO);
  return *line;
}

int64_t TerminalLine::columns() const {
  winsize size{};
  return (::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80) - 1;
}

// Blanks and not an escape sequence, which not every terminal knows.
void TerminalLine::draw(std::string line, int64_t width) {
  const std::lock_guard lock(mutex_);
  const int64_t blanks =
      std::clamp<int64_t>(width_ - width, 0, std::max<int64_t>(columns() - width, 0));
  line.append(static_cast<size_t>(blanks), ' ');
  width_ = width;
  write_once(fd_, "\r" + line);
}

void TerminalLine::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (width_ == 0) {
    if (!text.empty()) write_once(fd_, text);
    return;
  }
  const auto blanks = static_cast<size_t>(std::min(width_, columns()));
  width_ = 0;
  write_once(fd_, "\r" + std::string(blanks, ' ') + "\r" + std::string(text));
}

}  // namespace levin::detail
