#pragma once
// Leader: the launcher that serves the store decides for all nodes: who takes part, when a start is
// given up, whether the group starts again, and how the job ends.
//
//   Leader leader(store, keys, options, agent);
//   while (!leader.over()) { leader.look(); sleep(monitor_interval); }

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/base/awake.h"
#include "levin/launch/options.h"
#include "levin/launch/rendezvous/messages.h"
#include "levin/launch/rendezvous/shared_store.h"

namespace levin::launch {

class Leader {
 public:
  /// own_agent: the number of the launcher that leads.
  Leader(SharedStore& store, Keys keys, const LaunchOptions& options, int64_t own_agent);

  /// Looks at what the launchers have written, and writes what follows from it.
  void look();
  /// The end is written.
  bool over() const { return phase_ == Phase::kOver; }
  /// Every other launcher that lives has seen the end.
  bool all_have_left();

 private:
  enum class Phase { kGathering, kRunning, kStopping, kOver };
  using Clock = std::chrono::steady_clock;

  struct Agent {
    NodeInfo info;
    int64_t beats = -1;
    Clock::time_point last_beat;
    bool gone = false;
  };

  /// Why the start under way is given up.
  struct Cause {
    std::optional<RankFailure> failure = std::nullopt;
    std::string lost_host = {};
    int64_t signal = 0;
    bool joined = false;
  };

  void look_for_new_agents();
  /// Returns whether the next number has been without a name for too long.
  bool is_overdue();
  void look_for_lost_agents();
  /// After a stop of this launcher itself, which then has heard of nobody, starts all clocks again,
  /// so that no agent counts as lost.
  void begin_anew_after_sleep();
  std::vector<int64_t> present() const;
  bool has_successor(size_t agent) const;
  bool has_twins() const;
  void gather();
  void publish_plan(const std::vector<int64_t>& nodes);
  void watch();
  bool all_reported();
  void stop(Cause cause, bool gently);
  void settle_stop();
  std::optional<EndNotice> ending();
  void refuse(const std::string& why);
  void end(int64_t exit_code, const std::string& why);

  SharedStore& store_;
  Keys keys_;
  const LaunchOptions& options_;
  int64_t own_agent_;
  Phase phase_ = Phase::kGathering;
  int64_t attempt_ = 0;
  int64_t restarts_left_;
  Clock::time_point gathering_since_ = Clock::now();
  Clock::time_point last_join_ = Clock::now();
  std::optional<Clock::time_point> nameless_since_;
  levin::detail::AwakeTime watch_;  // this launcher's own
  std::vector<Agent> agents_;
  std::vector<int64_t> members_;
  std::set<int64_t> reported_;
  Cause cause_;
};

}  // namespace levin::launch
