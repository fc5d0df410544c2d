#include "levin/launch/node/rank_stream.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "levin/base/check.h"
#include "levin/files/writing/output.h"

namespace levin::launch {
namespace {

// A longer line is passed on in parts.
constexpr size_t kLongestLine = size_t{1} << 16;
constexpr size_t kLongestKept = 500;
constexpr int kReadsAtOnce = 16;

}  // namespace

RankStream::RankStream(Options options, Console& console)
    : options_(std::move(options)), console_(console) {
  make_ends();
  ::fcntl(read_end_.number(), F_SETFL, O_NONBLOCK);
  if (options_.file.empty()) return;
  file_ = files::create_beside(options_.file);
  LEVIN_CHECK(file_, "launch.log", "cannot write {}: {}", options_.file.string(),
              posix::reason(errno));
}

void RankStream::make_ends() {
  int ends[2];
  winsize size = {};
  if (options_.as_it_comes && ::ioctl(options_.console, TIOCGWINSZ, &size) == 0) {
    termios settings = {};
    ::cfmakeraw(&settings);  // the console itself sees to line ends
    ::cfsetspeed(&settings, B38400);
    LEVIN_CHECK(::openpty(&ends[0], &ends[1], nullptr, &settings, &size) == 0, "launch.log",
                "cannot make a pseudo-terminal: {}", posix::reason(errno));
    for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  } else {
    LEVIN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "launch.log", "cannot make a pipe: {}",
                posix::reason(errno));
  }
  read_end_ = posix::Descriptor(ends[0]);
  write_end_ = posix::Descriptor(ends[1]);
}

bool RankStream::read_once() {
  std::array<char, 1 << 14> buffer;
  const ssize_t count = ::read(read_end_.number(), buffer.data(), buffer.size());
  if (count < 0 && errno != EIO) return errno == EINTR;
  if (count <= 0) {  // a pseudo-terminal whose other end is closed says EIO
    read_end_.close();
    return false;
  }
  take({buffer.data(), static_cast<size_t>(count)});
  return true;
}

void RankStream::pump() {
  for (int i = 0; i < kReadsAtOnce && read_end_; ++i) {
    if (!read_once()) return;
  }
}

void RankStream::finish() {
  while (read_end_ && read_once()) {
  }
  read_end_.close();
  if (unfinished_.empty()) return;
  show(unfinished_ + "\n");
  unfinished_.clear();
}

void RankStream::take(std::string_view bytes) {
  if (file_) posix::write_all(file_, std::as_bytes(std::span(bytes)));
  if (options_.as_it_comes && options_.console >= 0) {
    console_.write(options_.console, without_known_errors(bytes));
  }
  unfinished_ += bytes;
  size_t end = unfinished_.find_last_of(options_.as_it_comes ? "\r\n" : "\n");
  if (end == std::string::npos) {
    if (unfinished_.size() < kLongestLine) return;
    unfinished_ += '\n';
    end = unfinished_.size() - 1;
  }
  show(std::string_view(unfinished_).substr(0, end + 1));
  unfinished_.erase(0, end + 1);
}

// An error is written at once, so that it is a whole line of what comes.
std::string RankStream::without_known_errors(std::string_view bytes) {
  std::string text;
  bool is_line = unfinished_.empty();
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    const bool is_whole = end != std::string_view::npos;
    const std::string_view line = bytes.substr(0, end);
    const bool is_known = is_line && is_whole && options_.errors != nullptr &&
                          !options_.errors->is_news(options_.rank, line);
    const size_t taken = is_whole ? end + 1 : bytes.size();
    if (!is_known) text.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    is_line = is_whole;
  }
  return text;
}

// In one write, so that lines of several launchers on one terminal do not mix either.
void RankStream::show(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    const size_t end = lines.find_first_of(options_.as_it_comes ? "\r\n" : "\n");
    const std::string_view line = lines.substr(0, end);
    const bool is_known = !options_.as_it_comes && options_.console >= 0 &&
                          options_.errors != nullptr &&
                          !options_.errors->is_news(options_.rank, line);
    if (!is_known) text.append(options_.prefix).append(line).append("\n");
    if (!options_.as_it_comes || !line.empty()) {
      keep(line);
      ends_with_error_ =
          options_.console >= 0 && options_.errors != nullptr && SaidErrors::is_error(line);
    }
    lines.remove_prefix(end + 1);
  }
  if (options_.console >= 0 && !options_.as_it_comes) console_.write(options_.console, text);
}

void RankStream::keep(std::string_view line) {
  if (options_.num_last_lines == 0) return;
  last_lines_.emplace_back(line.substr(0, kLongestKept));
  if (last_lines_.size() > options_.num_last_lines) last_lines_.pop_front();
}

std::vector<std::string> RankStream::last_lines() const {
  return {last_lines_.begin(), last_lines_.end()};
}

}  // namespace levin::launch
