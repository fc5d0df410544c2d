#include "levin/launch/node/rank_group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::launch {
namespace {

constexpr int kCannotRun = 127;  // as a shell says it

// An end that somebody else was told of is no success.
RankFailure failure_of(const Member& member, std::optional<int> status, pid_t pid,
                       const std::string& host, std::vector<std::string> last_lines) {
  RankFailure failure{.rank = member.rank, .host = host, .pid = pid};
  if (!status) {
    failure.exit_code = 1;
    failure.text =
        "an unknown status: another thread of this program waits for any child (wait, "
        "waitpid(-1)); pass its own child's pid to waitpid";
  } else if (WIFSIGNALED(*status)) {
    failure.signal = WTERMSIG(*status);
  } else {
    failure.exit_code = WEXITSTATUS(*status);
  }
  failure.last_lines = std::move(last_lines);
  return failure;
}

}  // namespace

RankGroup::RankGroup(std::vector<Member> members, Options options, Guard& guard, Console& console)
    : options_(std::move(options)), guard_(guard), console_(console) {
  for (Member& member : members) ranks_.emplace_back().member = std::move(member);
}

RankGroup::~RankGroup() {
  signal_all(SIGKILL);
  for (Running& rank : ranks_) {
    if (rank.process) static_cast<void>(end(rank));
  }
}

Outcome RankGroup::run(Signals& signals, const Events& events) {
  if (!start_all(events)) return outcome_;
  take_stop(events);  // it may have come with the plan, and is not announced again
  while (num_alive_ > 0) {
    wait_for_events(signals, events);
    pump_streams();
    take_ended(events);
    take_signals(signals, events);
    take_stop(events);
    kill_when_due();
  }
  const std::string others = errors_.others();
  if (outcome_.failure && !others.empty()) log::error("{}", others);
  return outcome_;
}

bool RankGroup::start_all(const Events& events) {
  for (Running& rank : ranks_) {
    try {
      start(rank);
    } catch (const Error& error) {
      if (error.id() != "launch.program") throw;
      fail({.host = options_.host,
            .exit_code = kCannotRun,
            .text = error.what(),
            .worth_a_restart = false},
           events);
      return false;
    }
  }
  return true;
}

void RankGroup::start(Running& rank) {
  ProcessSpec spec = rank.member.process;
  if (rank.member.output)
    spec.output = rank.output.emplace(*rank.member.output, console_).write_end();
  RankStream::Options error = rank.member.error;
  error.rank = rank.member.rank;
  error.errors = &errors_;
  spec.error = rank.error.emplace(std::move(error), console_).write_end();
  posix::Descriptor nothing;
  if (rank.member.signals_by_input) {
    int ends[2];
    LEVIN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "launch.program", "cannot make a pipe: {}",
                posix::reason(errno));
    nothing = posix::Descriptor(ends[0]);
    rank.input = posix::Descriptor(ends[1]);
    posix::write_all(rank.input, std::as_bytes(std::span(rank.member.first_line)));
  } else {
    nothing = posix::open_file("/dev/null", O_RDONLY);
  }
  spec.input = nothing.number();
  rank.process.emplace(Process::start(spec, guard_));
  if (rank.output) rank.output->started();
  rank.error->started();
  ++num_alive_;
}

void RankGroup::wait_for_events(const Signals& signals, const Events& events) {
  std::vector<pollfd> waited = {{signals.descriptor(), POLLIN, 0}};
  const bool full = console_.is_full();
  if (full) waited.push_back({console_.descriptor(), POLLIN, 0});
  if (events.stop_descriptor >= 0 && !stopping_) {
    waited.push_back({events.stop_descriptor, POLLIN, 0});
  }
  for (const Running& rank : ranks_) {
    if (!rank.process) continue;
    waited.push_back({rank.process->descriptor(), POLLIN, 0});
    for (const auto* stream : {&rank.output, &rank.error}) {
      if (!full && *stream && (*stream)->descriptor() >= 0) {
        waited.push_back({(*stream)->descriptor(), POLLIN, 0});
      }
    }
  }
  constexpr int kLookAgainMs = 1000;  // looks whether the console's reader is gone
  int timeout_ms = full ? kLookAgainMs : -1;
  if (respite_) {
    constexpr int64_t kTickMs = 300;  // often enough to notice that this process was stopped
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(respite_->limit - respite_->waited.look());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, kTickMs));
  }
  ::poll(waited.data(), waited.size(), timeout_ms);
}

// Ranks wait for a console that is full, as for a pipe of their own.
void RankGroup::pump_streams() {
  if (console_.is_full()) return;
  for (Running& rank : ranks_) {
    if (rank.output) rank.output->pump();
    if (rank.error) rank.error->pump();
  }
}

void RankGroup::take_ended(const Events& events) {
  std::vector<RankFailure> failures;
  for (Running& rank : ranks_) {
    if (!rank.process) continue;
    pollfd ended = {rank.process->descriptor(), POLLIN, 0};
    if (::poll(&ended, 1, 0) <= 0) continue;
    if (auto failure = end(rank)) failures.push_back(std::move(*failure));
  }
  // If several ranks failed at once, one that a signal killed is the likelier cause.
  const auto cause =
      std::ranges::find_if(failures, [](const RankFailure& f) { return f.signal != 0; });
  if (failures.empty() || stopping_) return;
  fail(cause != failures.end() ? *cause : failures.front(), events);
}

// Cleans up a rank whose process has ended and returns its failure, if any.
std::optional<RankFailure> RankGroup::end(Running& rank) {
  const pid_t pid = rank.process->pid();
  const std::optional<int> status = rank.process->reap();
  rank.process.reset();
  rank.input.close();
  --num_alive_;
  if (rank.output) rank.output->finish();
  rank.error->finish();
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return std::nullopt;
  RankFailure failure =
      failure_of(rank.member, status, pid, options_.host, rank.error->last_lines());
  failure.is_explained = rank.error->ends_with_error();
  return failure;
}

void RankGroup::fail(RankFailure failure, const Events& events) {
  // If the other ranks go on, the failure of the group's first rank still counts for the group.
  const bool spoken = outcome_.failure && failure.rank != 0;
  if (!spoken) outcome_.failure = std::move(failure);
  if (!options_.failure_ends_all && outcome_.failure->rank >= 0) {
    outcome_.kind = Outcome::Kind::kFailed;
    return;
  }
  stop(Outcome::Kind::kFailed, SIGTERM, options_.failure_timeout_s);
  if (events.on_failure) events.on_failure(*outcome_.failure);
}

void RankGroup::take_signals(Signals& signals, const Events& events) {
  while (const auto number = signals.take()) {
    if (*number == SIGUSR1 && !options_.saves_on_usr1) {
      signal_all(SIGUSR1);
      continue;
    }
    // SIGUSR1 only says that SIGTERM is to come.
    const bool again = *number != SIGUSR1 && std::exchange(is_told_to_end_, true);
    if (outcome_.signal == 0) outcome_.signal = *number;
    // By SIGUSR1, by a failure, or by a signal that another launcher had sooner: the ranks are ending, and a
    // second SIGINT would keep them from saving.
    if (stopping_ && !again) {
      outcome_.kind = Outcome::Kind::kSignalled;
      console_.hurry();
    } else {
      // Ranks save at SIGTERM and SIGINT; the other two would just end them.
      stop(Outcome::Kind::kSignalled, *number == SIGINT ? SIGINT : SIGTERM,
           options_.shutdown_timeout_s);
    }
    if (again) signal_all(SIGKILL);
    if (events.on_signal) events.on_signal(*number);
  }
}

void RankGroup::take_stop(const Events& events) {
  if (!events.stop || stopping_) return;
  if (const auto gently = events.stop()) {
    stop(Outcome::Kind::kStopped, SIGTERM,
         *gently ? options_.shutdown_timeout_s : options_.failure_timeout_s);
  }
}

void RankGroup::stop(Outcome::Kind kind, int signal, double timeout_s) {
  outcome_.kind = kind;
  stopping_ = true;
  if (kind == Outcome::Kind::kSignalled) console_.hurry();
  respite_.emplace(Respite{levin::detail::AwakeTime(), std::chrono::duration<double>(timeout_s)});
  signal_all(signal);
}

void RankGroup::signal_all(int signal) {
  for (Running& rank : ranks_) {
    if (!rank.process) continue;
    if (rank.input && signal != SIGKILL) {
      const std::string line = std::to_string(signal) + "\n";
      posix::write_all(rank.input, std::as_bytes(std::span(line)));
    } else {
      rank.process->signal(signal);
    }
  }
}

void RankGroup::kill_when_due() {
  if (!respite_ || respite_->waited.look() < respite_->limit) return;
  respite_.reset();
  signal_all(SIGKILL);
}

}  // namespace levin::launch
