#include "levin/launch/node/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "levin/base/log.h"
#include "levin/base/posix.h"

namespace levin::launch {
namespace {

using std::chrono::steady_clock;

constexpr size_t kMostWaiting = size_t{1} << 20;
constexpr size_t kOneWrite =
    4096;  // a pipe takes so much at once: lines of several launchers do not mix
constexpr std::chrono::seconds kReaderIsGone(30);
constexpr std::chrono::milliseconds kInstant(500);

/// stdout and stderr are often one terminal.
bool is_one_console() {
  struct stat out = {}, err = {};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino && out.st_rdev == err.st_rdev;
}

/// Up to the last line that fits.
size_t first_part(std::string_view text) {
  if (text.size() <= kOneWrite) return text.size();
  const size_t line = text.substr(0, kOneWrite).rfind('\n');
  return line == std::string_view::npos ? kOneWrite : line + 1;
}

// The console may be a pipe that someone made non-blocking. A closed one loses the text.
void write_to_console(int number, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(number, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd writable = {number, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

struct Console::State {
  struct Piece {
    int number;
    std::string text;
  };
  /// The output of one file, terminal or pipe, in order.
  struct Stretch {
    std::deque<Piece> waiting = {};
    size_t bytes = 0;
    size_t dropped = 0;
    int last_number = STDERR_FILENO;
    steady_clock::time_point last_taken = steady_clock::now();
  };

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Stretch> lanes;
  posix::Descriptor room{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  mutable bool wants_room = false;
  bool hurried = false;
  bool ending = false;
  bool takes_log = false;

  Stretch& lane_of(int number) {
    return lanes.size() == 1 || number == STDOUT_FILENO ? lanes[0] : lanes[1];
  }
  bool is_left(const Stretch& lane) const {
    const auto limit = hurried ? steady_clock::duration(kInstant) : kReaderIsGone;
    return lane.bytes > 0 && steady_clock::now() - lane.last_taken > limit;
  }
  void append(Stretch& lane, int number, std::string_view text) {
    if (lane.bytes == 0) lane.last_taken = steady_clock::now();
    lane.waiting.push_back({number, std::string(text)});
    lane.bytes += text.size();
    lane.last_number = number;
    wake.notify_all();
  }
  void tell_of_dropped(Stretch& lane) {
    if (lane.dropped == 0) return;
    const std::string line =
        log::line_of(log::Level::kWarn,
                     fmt::format("nobody read the console: {} bytes of output were left out here",
                                 std::exchange(lane.dropped, 0)));
    append(lane, lane.last_number, line);
  }
};

Console::Console() : state_(std::make_shared<State>()) {
  state_->lanes.resize(is_one_console() ? 1 : 2);
  for (size_t lane = 0; lane < state_->lanes.size(); ++lane) {
    std::thread([state = state_, lane] { drain(state, lane); }).detach();
  }
  auto before = log::set_sink([state = state_](log::Level level, std::string_view text) {
    put(*state, STDERR_FILENO, log::line_of(level, text));
  });
  state_->takes_log = !before;
  if (before) log::set_sink(std::move(before));
}

Console::~Console() {
  if (state_->takes_log) log::set_sink({});
  hurry();
  flush(nullptr);
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->wake.notify_all();
}

void Console::write(int number, std::string_view text) { put(*state_, number, text); }

void Console::put(State& state, int number, std::string_view text) {
  if (text.empty()) return;
  const std::lock_guard lock(state.mutex);
  State::Stretch& lane = state.lane_of(number);
  const bool overflows = lane.bytes + text.size() > kMostWaiting;
  if (overflows && (state.hurried || state.is_left(lane))) {
    lane.dropped += text.size();
    return;
  }
  if (!overflows) state.tell_of_dropped(lane);
  state.append(lane, number, text);
}

bool Console::is_full() const {
  const std::lock_guard lock(state_->mutex);
  const bool full = !state_->hurried && std::ranges::any_of(state_->lanes, [&](const auto& lane) {
    return lane.bytes >= kMostWaiting && !state_->is_left(lane);
  });
  if (full) {
    eventfd_t count = 0;
    ::eventfd_read(state_->room.number(), &count);
    state_->wants_room = true;
  }
  return full;
}

int Console::descriptor() const { return state_->room.number(); }

void Console::hurry() {
  const std::lock_guard lock(state_->mutex);
  state_->hurried = true;
}

void Console::flush(const std::function<bool()>& give_up) {
  constexpr std::chrono::milliseconds kLook(20);
  std::unique_lock lock(state_->mutex);
  while (true) {
    bool done = true;
    for (State::Stretch& lane : state_->lanes) {
      if (lane.bytes < kMostWaiting) state_->tell_of_dropped(lane);
      done = done && (lane.bytes == 0 || state_->is_left(lane));
    }
    if (done) return;
    state_->wake.wait_for(lock, kLook);
    lock.unlock();
    if (give_up && give_up()) hurry();
    lock.lock();
  }
}

void Console::drain(const std::shared_ptr<State>& state, size_t lane_number) {
  std::unique_lock lock(state->mutex);
  State::Stretch& lane = state->lanes[lane_number];
  while (true) {
    state->wake.wait(lock, [&] { return state->ending || !lane.waiting.empty(); });
    if (lane.waiting.empty()) return;
    State::Piece piece = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    for (std::string_view rest = piece.text; !rest.empty();) {
      const size_t count = first_part(rest);
      lock.unlock();
      write_to_console(piece.number, rest.substr(0, count));
      lock.lock();
      rest.remove_prefix(count);
      lane.bytes -= count;
      lane.last_taken = steady_clock::now();
      if (state->wants_room && lane.bytes < kMostWaiting / 2) {
        state->wants_room = false;
        ::eventfd_write(state->room.number(), 1);
      }
    }
    state->wake.notify_all();
  }
}

}  // namespace levin::launch
