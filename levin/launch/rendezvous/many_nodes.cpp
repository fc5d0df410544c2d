#include <poll.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/rank_failure.h"
#include "levin/launch/rendezvous/link.h"
#include "levin/launch/rendezvous/rendezvous.h"

namespace levin::launch {
namespace {

/// The plan for the node of that launcher; nothing when the group is full without it.
std::optional<Plan> plan_for(const GroupPlan& group, const Link::News& news) {
  std::optional<Plan> own;
  Plan plan{.attempt = group.attempt,
            .max_restarts = group.max_restarts,
            .num_nodes = static_cast<int64_t>(group.nodes.size()),
            .world_size = 0,
            .master_address = news.endpoint.host,
            .master_port = news.endpoint.port};
  for (const GroupPlan::Node& node : group.nodes) {
    plan.local_world_size = node.num_ranks;
    if (node.agent == news.agent) own = plan;
    plan.world_size += node.num_ranks;
    plan.first_rank += node.num_ranks;
    ++plan.node_rank;
  }
  if (own) own->world_size = plan.world_size;
  return own;
}

class ManyNodes final : public Rendezvous {
 public:
  explicit ManyNodes(const LaunchOptions& options)
      : run_id_(options.rdzv_id.empty() ? "none" : options.rdzv_id),
        token_(options.token),
        num_ranks_(options.nproc_per_node),
        most_nodes_(options.nnodes.most),
        link_(options) {
    if (!token_.empty()) return;
    log::warn(
        "the launchers of this job share no secret, so anyone who reaches their port can end the "
        "job; set {} to the same text on all nodes",
        comm::kTokenVariable);
  }

  Step next(Signals& signals) override {
    for (;;) {
      if (const auto step = step_of(link_.news())) return *step;
      pollfd waited[] = {{link_.descriptor(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
      ::poll(waited, 2, -1);
      if (const auto number = signals.take()) {
        if (signal_ != 0) return {.exit_code = 128 + *number};
        signal_ = *number;
        link_.send_leave(signal_);
      }
    }
  }

  RankGroup::Events events() override {
    return {.stop_descriptor = link_.descriptor(),
            .stop = [this] { return stop_wanted(); },
            .on_failure =
                [this](const RankFailure& failure) {
                  link_.send_alarm(attempt_, {.failure = failure});
                },
            .on_signal = [this](int signal) { link_.send_alarm(attempt_, {.signal = signal}); }};
  }

  void settle(const Outcome& outcome) override {
    link_.send_report(attempt_, {.failure = outcome.failure, .signal = outcome.signal});
    if (outcome.kind == Outcome::Kind::kSignalled) {
      signal_ = outcome.signal;
      link_.send_leave(signal_);
    }
    link_.ask_for(++attempt_);
  }

 private:
  std::optional<Step> step_of(const Link::News& news) {
    if (news.error) return step_after(news);
    if (news.end) {
      if (!news.serves && news.end->exit_code != 0) log::error("job over: {}", news.end->why);
      return Step{.exit_code = static_cast<int>(news.end->exit_code)};
    }
    // The launcher that serves stays until the others have saved.
    if (signal_ != 0)
      return news.serves ? std::nullopt : std::optional(Step{.exit_code = 128 + signal_});
    if (!news.plan) return std::nullopt;
    check_plan(*news.plan, news);
    auto plan = plan_for(*news.plan, news);
    if (!plan) {
      link_.ask_for(++attempt_);
      return std::nullopt;
    }
    plan->run_id = run_id_;
    plan->token = token_;
    return Step{.plan = std::move(plan)};
  }

  // The connection is down. An Error before this launcher has joined goes to the user unchanged.
  Step step_after(const Link::News& news) const {
    if (signal_ != 0) return {.exit_code = 128 + signal_};
    try {
      std::rethrow_exception(news.error);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string_view what = error.what();
      log::error("lost the launcher that serves the rendezvous at {}:{} ({})", news.endpoint.host,
                 news.endpoint.port, what.substr(0, what.find('\n')));
    }
    return {.exit_code = exit_code_for_lost_node()};
  }

  std::optional<bool> stop_wanted() {
    const auto news = link_.news();
    if (news.stop) log::info("stopping this node's ranks: {}", news.stop->why);
    if (news.stop) return news.stop->gently;
    if (news.error || news.end) return false;
    return std::nullopt;
  }

  /// Checks that another launcher's plan is one that this launcher can follow.
  void check_plan(const GroupPlan& group, const Link::News& news) const {
    bool fits = std::ssize(group.nodes) <= most_nodes_ && group.attempt == attempt_;
    for (const GroupPlan::Node& node : group.nodes) {
      fits = fits && (node.agent != news.agent || node.num_ranks == num_ranks_);
    }
    LEVIN_CHECK(fits, "launch.rendezvous",
                "got a plan of {} nodes for start {}, wanted at most {} for start {} with {} ranks "
                "here; give all nodes the same options",
                group.nodes.size(), group.attempt, most_nodes_, attempt_, num_ranks_);
  }

  std::string run_id_;
  std::string token_;
  int64_t num_ranks_;
  int64_t most_nodes_;
  int64_t attempt_ = 0;
  int signal_ = 0;
  Link link_;
};

}  // namespace

std::unique_ptr<Rendezvous> rendezvous_of_nodes(const LaunchOptions& options) {
  return std::make_unique<ManyNodes>(options);
}

}  // namespace levin::launch
