#pragma once
// Where the launchers of several nodes meet: one of them serves the store, the others connect.

#include <atomic>

#include "levin/launch/options.h"
#include "levin/launch/rendezvous/shared_store.h"

namespace levin::launch {

struct MeetingPoint {
  Endpoint endpoint;  ///< the port is the one that is served
  SharedStore store;
  bool served_here = false;
};

/// Node rank 0 serves; without node ranks the first launcher on the host that the endpoint names.
/// The others wait until somebody serves, or until leave is set. Throws Error
/// "comm.environment.port" when the port is taken, "comm.environment.name" when the host's name
/// does not resolve in time, "launch.rendezvous" when nobody serves in time and "launch.loopback".
MeetingPoint meet(const LaunchOptions& options, const std::atomic<bool>& leave);

}  // namespace levin::launch
