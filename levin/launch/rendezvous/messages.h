#pragma once
// The messages of several nodes' launchers through the store, as JSON.
//
//   store.set(keys.stop(attempt), encode(StopNotice{.why = "rank 3 failed"}));

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/rank_failure.h"

namespace levin::launch {

/// A launcher's own, set once when it comes.
struct NodeInfo {
  std::string host = {};
  int64_t num_ranks = 1;
  int64_t node_rank = -1;                   ///< -1: any
  std::vector<std::string> addresses = {};  ///< from which it reaches the store, "10.0.0.3"
};

/// The events of a node: its first failure or signal at once, and its end in any case.
struct Report {
  std::optional<RankFailure> failure = std::nullopt;
  int64_t signal = 0;  ///< signal that the launcher got: it ends when its ranks have saved
};

/// One start of the group.
struct GroupPlan {
  struct Node {
    int64_t agent = 0;  ///< number of the launcher
    int64_t num_ranks = 1;
  };
  int64_t attempt = 0;
  int64_t max_restarts = 0;
  std::vector<Node> nodes = {};  ///< in the order of their node ranks
};

struct StopNotice {
  bool gently = false;  ///< ranks get the time to save
  std::string why = {};
};

struct EndNotice {
  int64_t exit_code = 0;
  std::string why = {};
};

LEVIN_API std::string encode(const NodeInfo& info);
LEVIN_API std::string encode(const Report& report);
LEVIN_API std::string encode(const GroupPlan& plan);
LEVIN_API std::string encode(const StopNotice& notice);
LEVIN_API std::string encode(const EndNotice& notice);

/// Each throws Error "launch.rendezvous" when another version of levin wrote it, or it holds
/// numbers that no launcher has.
LEVIN_API void decode(std::string_view text, NodeInfo& info);
LEVIN_API void decode(std::string_view text, Report& report);
LEVIN_API void decode(std::string_view text, GroupPlan& plan);
LEVIN_API void decode(std::string_view text, StopNotice& notice);
LEVIN_API void decode(std::string_view text, EndNotice& notice);

/// Keys of one job in the store.
class Keys {
 public:
  Keys(const std::string& run_id, const std::string& token)
      : job_("levin/" + run_id + "/" + (token.empty() ? "" : comm::key_word(token) + "/")) {}

  std::string num_agents() const { return job_ + "agents"; }
  std::string info(int64_t agent) const { return of("info", agent); }
  std::string beat(int64_t agent) const { return of("beat", agent); }
  std::string left(int64_t agent) const { return of("left", agent); }
  std::string plan(int64_t attempt) const { return of("plan", attempt); }
  std::string alarm(int64_t attempt) const { return of("alarm", attempt); }
  std::string stop(int64_t attempt) const { return of("stop", attempt); }
  std::string report(int64_t attempt, int64_t agent) const {
    return of("report", attempt) + "/" + std::to_string(agent);
  }
  std::string end() const { return job_ + "end"; }

 private:
  std::string of(const char* what, int64_t number) const {
    return job_ + what + "/" + std::to_string(number);
  }

  std::string job_;
};

}  // namespace levin::launch
