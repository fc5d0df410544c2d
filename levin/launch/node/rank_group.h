#pragma once
// RankGroup: the ranks of one node, from their start to the end of the last one.
// One that fails takes the others down with it; a signal to the launcher lets all of them save.
//
//   RankGroup group(members, {.shutdown_timeout_s = 30}, guard, console);
//   const Outcome outcome = group.run(signals, {});

#include <chrono>
#include <functional>
#include <list>
#include <optional>

#include "levin/base/awake.h"
#include "levin/launch/node/guard.h"
#include "levin/launch/node/process.h"
#include "levin/launch/node/rank_stream.h"
#include "levin/launch/node/signals.h"
#include "levin/launch/rank_failure.h"

namespace levin::launch {

struct Member {
  int64_t rank = 0;
  ProcessSpec process = {};
  std::optional<RankStream::Options> output = std::nullopt;  ///< unset: the launcher's own stdout
  RankStream::Options error = {};
  bool signals_by_input = false;  ///< signals reach it as numbers on its stdin, as over ssh
  std::string first_line = {};    ///< first line of its stdin in that case
};

struct Outcome {
  enum class Kind { kFinished, kFailed, kSignalled, kStopped };
  Kind kind = Kind::kFinished;
  std::optional<RankFailure> failure = std::nullopt;
  int signal = 0;  ///< the first that the launcher got
};

class RankGroup {
 public:
  struct Options {
    double shutdown_timeout_s = 30;
    double failure_timeout_s = 0.3;
    bool failure_ends_all = true;
    bool saves_on_usr1 = false;  ///< SIGUSR1 ends the ranks as SIGTERM does, or is passed on
    std::string host = {};       ///< for the summary
  };

  /// The outside world of a group: when to stop, and whom to tell.
  struct Events {
    int stop_descriptor = -1;  ///< readable when the other nodes may want this group to stop
    /// Returns whether to stop, and if so whether ranks get the time to save (true).
    std::function<std::optional<bool>()> stop = nullptr;
    std::function<void(const RankFailure&)> on_failure = nullptr;  ///< the others still run
    std::function<void(int)> on_signal = nullptr;
  };

  RankGroup(std::vector<Member> members, Options options, Guard& guard, Console& console);
  /// Kills what still runs.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  Outcome run(Signals& signals, const Events& events);

 private:
  struct Running {
    Member member;
    std::optional<Process> process;
    std::optional<RankStream> output;
    std::optional<RankStream> error;
    posix::Descriptor input;
  };

  bool start_all(const Events& events);
  void start(Running& rank);
  void wait_for_events(const Signals& signals, const Events& events);
  void pump_streams();
  void take_ended(const Events& events);
  void take_signals(Signals& signals, const Events& events);
  void take_stop(const Events& events);
  std::optional<RankFailure> end(Running& rank);
  void fail(RankFailure failure, const Events& events);
  void stop(Outcome::Kind kind, int signal, double timeout_s);
  void signal_all(int signal);
  void kill_when_due();

  Options options_;
  Guard& guard_;
  Console& console_;
  SaidErrors errors_;
  std::list<Running> ranks_;
  size_t num_alive_ = 0;
  Outcome outcome_;
  bool stopping_ = false;
  bool is_told_to_end_ = false;  ///< by a signal to this launcher: another one kills
  /// Until the ranks are killed that were asked to end; none once they are.
  struct Respite {
    levin::detail::AwakeTime waited;
    std::chrono::duration<double> limit;
  };
  std::optional<Respite> respite_;
};

}  // namespace levin::launch
