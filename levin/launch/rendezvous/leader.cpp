#include "levin/launch/rendezvous/leader.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/launch/rank_failure.h"

namespace levin::launch {
namespace {

// A launcher that has a successor is taken for lost when it is silent for so long.
constexpr double kSuccessorSeconds = 1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Numbers that launchers have taken; each one that is started anew takes another.
constexpr int64_t kMostLaunchers = 1 << 20;

int64_t signal_in(std::string_view text) {
  int64_t number = 0;
  from_text(text, number);
  return std::clamp<int64_t>(number, 0, 64);
}

}  // namespace

Leader::Leader(SharedStore& store, Keys keys, const LaunchOptions& options, int64_t own_agent)
    : store_(store),
      keys_(std::move(keys)),
      options_(options),
      own_agent_(own_agent),
      restarts_left_(options.max_restarts),
      watch_(std::chrono::ceil<Clock::duration>(
          std::chrono::duration<double>(1 + 3 * options.monitor_interval_s))) {}

void Leader::look() {
  look_for_new_agents();
  look_for_lost_agents();
  if (phase_ == Phase::kGathering) gather();
  if (phase_ == Phase::kRunning) watch();
  if (phase_ == Phase::kStopping) settle_stop();
}

void Leader::look_for_new_agents() {
  const int64_t count = std::min(store_.add(keys_.num_agents(), 0), kMostLaunchers);
  while (static_cast<int64_t>(agents_.size()) < count) {
    const auto text = store_.find(keys_.info(static_cast<int64_t>(agents_.size())));
    if (!text && !is_overdue()) return;  // it has taken its number and not yet said who it is
    nameless_since_.reset();
    Agent& agent = agents_.emplace_back();
    agent.gone = !text;  // the number of nobody, or of a stranger
    if (!text) continue;
    decode(*text, agent.info);
    for (const std::string& address : agent.info.addresses) store_.know(address);
    agent.last_beat = last_join_ = Clock::now();
    log::info("{} joined with {} ranks, {} of {} nodes have joined", agent.info.host,
              agent.info.num_ranks, present().size(), options_.nnodes.most);
  }
}

bool Leader::is_overdue() {
  if (!nameless_since_) nameless_since_ = Clock::now();
  return seconds_since(*nameless_since_) > options_.timeouts.node_s;
}

void Leader::begin_anew_after_sleep() {
  watch_.look();
  if (!watch_.slept()) return;
  const auto now = Clock::now();
  gathering_since_ = last_join_ = now;
  nameless_since_.reset();
  for (Agent& agent : agents_) agent.last_beat = now;
}

void Leader::look_for_lost_agents() {
  begin_anew_after_sleep();
  for (size_t i = 0; i < agents_.size(); ++i) {
    Agent& agent = agents_[i];
    const auto number = static_cast<int64_t>(i);
    if (agent.gone) continue;
    const int64_t beats = store_.add(keys_.beat(number), 0);
    if (beats != agent.beats) agent.last_beat = Clock::now();
    agent.beats = beats;
    const double timeout_s = has_successor(i)
                                 ? std::min(kSuccessorSeconds, options_.timeouts.node_s)
                                 : options_.timeouts.node_s;
    const bool lost = number != own_agent_ && seconds_since(agent.last_beat) > timeout_s;
    agent.gone = lost || store_.find(keys_.left(number));
    if (lost) {
      log::warn("the launcher on {} sent nothing for {} s and counts as lost", agent.info.host,
                timeout_s);
    }
  }
}

/// A later launcher says the same --node-rank: a pod that was started again, or a mistake.
bool Leader::has_successor(size_t agent) const {
  const int64_t node_rank = agents_[agent].info.node_rank;
  return node_rank >= 0 &&
         std::any_of(agents_.begin() + static_cast<std::ptrdiff_t>(agent) + 1, agents_.end(),
                     [&](const Agent& a) { return !a.gone && a.info.node_rank == node_rank; });
}

bool Leader::has_twins() const {
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (!agents_[i].gone && has_successor(i)) return true;
  }
  return false;
}

/// Returns the agents that take part in the next start, in the order of their node ranks.
std::vector<int64_t> Leader::present() const {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (!agents_[i].gone) numbers.push_back(static_cast<int64_t>(i));
  }
  const auto rank_of = [&](int64_t number) {
    const int64_t wanted = agents_[static_cast<size_t>(number)].info.node_rank;
    return wanted < 0 ? options_.nnodes.most : wanted;
  };
  std::ranges::stable_sort(numbers, {}, rank_of);
  if (static_cast<int64_t>(numbers.size()) > options_.nnodes.most) {
    numbers.resize(static_cast<size_t>(options_.nnodes.most));
  }
  return numbers;
}

void Leader::gather() {
  if (const auto signal = store_.find(keys_.left(own_agent_))) {
    return end(128 + signal_in(*signal), "a launcher got signal " + *signal);
  }
  if (has_twins()) {
    if (seconds_since(last_join_) < 2 * kSuccessorSeconds) return;  // one of them may be gone
    return refuse(
        "launch.rendezvous: two running launchers have the same --node-rank; give each node its "
        "own");
  }
  const auto nodes = present();
  const auto count = static_cast<int64_t>(nodes.size());
  const auto& range = options_.nnodes;
  // After the first start, late nodes join by a new start; nobody waits for them.
  const bool called = attempt_ > 0 || seconds_since(last_join_) >= options_.timeouts.last_call_s;
  if (count == range.most || (count >= range.least && called)) return publish_plan(nodes);
  if (count >= range.least || seconds_since(gathering_since_) < options_.timeouts.join_s) return;
  std::string hosts;
  for (const int64_t node : nodes) {
    hosts += (hosts.empty() ? "" : ", ") + agents_[static_cast<size_t>(node)].info.host;
  }
  refuse(
      fmt::format("launch.rendezvous: {} of at least {} nodes joined within {} s ({}); start the "
                  "others, or raise join_timeout in --rdzv-conf",
                  count, range.least, options_.timeouts.join_s, hosts));
}

void Leader::publish_plan(const std::vector<int64_t>& nodes) {
  GroupPlan plan{.attempt = attempt_, .max_restarts = options_.max_restarts};
  for (const int64_t node : nodes) {
    plan.nodes.push_back({node, agents_[static_cast<size_t>(node)].info.num_ranks});
  }
  members_ = nodes;
  reported_.clear();
  cause_ = {};
  phase_ = Phase::kRunning;
  store_.set(keys_.plan(attempt_), encode(plan));
}

// A launcher writes its alarm before its report, so the reports are looked at first.
void Leader::watch() {
  const bool all = all_reported();
  if (const auto text = store_.find(keys_.alarm(attempt_))) {
    Report alarm;
    decode(*text, alarm);
    return stop({.failure = alarm.failure, .signal = alarm.signal}, alarm.signal != 0);
  }
  for (const int64_t member : members_) {
    const Agent& agent = agents_[static_cast<size_t>(member)];
    if (agent.gone) return stop({.lost_host = agent.info.host}, false);
  }
  if (all) return end(0, "");
  const bool newcomers = present().size() > members_.size();
  if (newcomers && reported_.empty()) stop({.joined = true}, true);
}

bool Leader::all_reported() {
  bool all = true;
  for (const int64_t member : members_) {
    if (agents_[static_cast<size_t>(member)].gone || reported_.contains(member)) continue;
    if (store_.find(keys_.report(attempt_, member))) {
      reported_.insert(member);
    } else {
      all = false;
    }
  }
  return all;
}

void Leader::stop(Cause cause, bool gently) {
  cause_ = std::move(cause);
  StopNotice notice{.gently = gently};
  if (cause_.failure) {
    const RankFailure& failure = *cause_.failure;
    notice.why = failure.rank < 0 ? failure.text
                                  : fmt::format("rank {} on {} ended with {}", failure.rank,
                                                failure.host, ending_of(failure));
  } else if (cause_.signal != 0) {
    notice.why = fmt::format("a launcher got signal {}", cause_.signal);
  } else {
    notice.why =
        cause_.joined ? "a node has joined" : fmt::format("the node {} was lost", cause_.lost_host);
  }
  phase_ = Phase::kStopping;
  store_.set(keys_.stop(attempt_), encode(notice));
}

void Leader::settle_stop() {
  if (!all_reported()) return;
  // Ranks often fail because a node was lost that is found out only now.
  for (const int64_t member : members_) {
    const Agent& agent = agents_[static_cast<size_t>(member)];
    if (agent.gone && cause_.signal == 0) cause_.lost_host = agent.info.host;
  }
  if (const auto notice = ending()) return end(notice->exit_code, notice->why);
  ++attempt_;
  gathering_since_ = last_join_ = Clock::now();
  phase_ = Phase::kGathering;
}

/// Returns how the job ends, or nothing when the group starts again.
std::optional<EndNotice> Leader::ending() {
  const auto left = static_cast<int64_t>(present().size());
  const bool fewer_will_do = options_.nnodes.elastic() && left >= options_.nnodes.least;
  if (cause_.joined && cause_.lost_host.empty()) {
    log::info("restarting all ranks with {} nodes", left);
    return std::nullopt;
  }
  const bool leader_signalled = agents_[static_cast<size_t>(own_agent_)].gone;
  if (cause_.signal != 0 && (leader_signalled || !fewer_will_do)) {
    return EndNotice{128 + cause_.signal, fmt::format("a launcher got signal {}", cause_.signal)};
  }
  const bool lost = !cause_.lost_host.empty() || cause_.signal != 0;
  if (lost && fewer_will_do) {
    log::warn("continuing with {} nodes", left);
    return std::nullopt;
  }
  RankFailure failure = cause_.failure.value_or(RankFailure{});
  if (lost) {
    failure = {.exit_code = exit_code_for_lost_node(),
               .text = fmt::format("the node {} was lost: its launcher is gone or cannot reach "
                                   "this one",
                                   cause_.lost_host)};
  }
  log::error("{}", describe(failure));
  if (restarts_left_ == 0 || !failure.worth_a_restart) {
    const std::string why = failure.rank < 0
                                ? failure.text
                                : fmt::format("rank {} on {} ended with {}", failure.rank,
                                              failure.host, ending_of(failure));
    return EndNotice{exit_code_of(failure), why};
  }
  --restarts_left_;
  log::warn("restarting all ranks, restart {} of {}", options_.max_restarts - restarts_left_,
            options_.max_restarts);
  return std::nullopt;
}

void Leader::refuse(const std::string& why) {
  log::error("{}", why);
  end(1, why);
}

void Leader::end(int64_t exit_code, const std::string& why) {
  phase_ = Phase::kOver;
  store_.set(keys_.end(), encode(EndNotice{exit_code, why}));
}

bool Leader::all_have_left() {
  look_for_lost_agents();
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (static_cast<int64_t>(i) != own_agent_ && !agents_[i].gone) return false;
  }
  return true;
}

}  // namespace levin::launch
