#pragma once
// Rendezvous: who decides on starts, restarts and the end of a job. For one node that is the
// launcher itself; several nodes agree on it.

#include <memory>
#include <optional>

#include "levin/launch/node/rank_group.h"
#include "levin/launch/options.h"
#include "levin/launch/plan.h"

namespace levin::launch {

class Rendezvous {
 public:
  virtual ~Rendezvous();

  struct Step {
    std::optional<Plan> plan = std::nullopt;  ///< plan of the next start; none: the job is over
    int exit_code = 0;                        ///< exit code of the launcher in that case
  };
  /// Waits until the next step of the job is decided. A signal meanwhile ends it.
  virtual Step next(Signals& signals) = 0;
  /// Returns the events that the ranks of the start under way must hear of, and the functions to
  /// tell of their own.
  virtual RankGroup::Events events() = 0;
  /// Takes the outcome of that start on this node.
  virtual void settle(const Outcome& outcome) = 0;
};

/// Serves the store for the ranks on --master-port or a free port of 127.0.0.1, whatever name the
/// options give this host: no other needs to reach it. Throws Error "comm.environment.port" when
/// the given one is taken, "launch.loopback".
std::unique_ptr<Rendezvous> rendezvous_of_one_node(const LaunchOptions& options);

/// Meets the launchers of the other nodes, on a thread of its own. next() throws what meet() does.
std::unique_ptr<Rendezvous> rendezvous_of_nodes(const LaunchOptions& options);

}  // namespace levin::launch
