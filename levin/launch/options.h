#pragma once
// LaunchOptions: what `levin run` is asked to do, in torchrun's words.
// Read from the command line by tools/run.cpp, which has options of its own beside them (tools/run_options.h);
// handed to launch() whole.
//
//   launch::launch({.nproc_per_node = 4, .max_restarts = 2, .command = {"./train", "--n", "3"}});

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin::launch {

struct NodeRange {
  int64_t least = 1;
  int64_t most = 1;

  bool elastic() const { return least < most; }
};

/// The times for which nodes wait for each other, in seconds; torchrun's --rdzv-conf.
struct RendezvousTimeouts {
  double join_s = 600;      ///< for the least number of nodes to come
  double last_call_s = 30;  ///< for more than the least, at the first start
  double node_s = 5;        ///< a node that is silent for so long is lost
};

struct LaunchOptions {
  NodeRange nnodes = {};  ///< min:max makes the job elastic
  int64_t nproc_per_node = 1;
  std::string rdzv_endpoint = {};  ///< host[:port] where several nodes meet
  std::string rdzv_id = {};        ///< the same on all nodes of a job
  std::string token = {};          ///< its secret; empty: LEVIN_JOB_TOKEN, else one node's own
  RendezvousTimeouts timeouts = {};
  int64_t max_restarts = 0;
  double monitor_interval_s = 0.1;               ///< between looks at the other nodes
  std::string log_dir = {};                      ///< DIR/ID/attempt_N/RANK/{stdout,stderr}.log
  std::string redirects = "0";                   ///< streams that go to a file only: 0-3 or 0:1,1:3
  std::string tee = "0";                         ///< streams that go to a file and the console
  std::vector<int64_t> local_ranks_filter = {};  ///< ranks shown on the console; empty: all
  std::optional<int64_t> node_rank = std::nullopt;
  std::string master_addr = {};  ///< node 0's host; with master_port the endpoint
  std::optional<int64_t> master_port = std::nullopt;
  std::string numa_binding = "none";  ///< none, node, socket, core-complex, exclusive
  double shutdown_timeout_s = 30;     ///< for ranks that were asked to save and end
  double failure_timeout_s = 0.3;     ///< for the other ranks when one has failed
  bool first_rank_plain = false;      ///< rank 0 writes to the console as it would by itself
  bool token_from_input = false;      ///< the first line of stdin is the token
  bool signals_from_input = false;    ///< numbers of signals are read from stdin, its end is SIGHUP
  std::vector<std::string> command = {};  ///< the program and its arguments

  /// Visits all options but the command and nproc_per_node, which the command line also takes as
  /// gpu and auto.
  LEVIN_API void fields(FieldVisitor& field);
};

using levin::from_text;  // the overloads below would hide it
using levin::to_text;

/// "2" or "1:4". Throws Error "launch.options".
LEVIN_API void from_text(std::string_view text, NodeRange& range);
LEVIN_API std::string to_text(const NodeRange& range);

/// Parses "join_timeout=60,last_call_timeout=5,node_timeout=3"; keys left out have their defaults.
/// Throws Error "launch.options" for a key it does not know.
LEVIN_API void from_text(std::string_view text, RendezvousTimeouts& timeouts);
LEVIN_API std::string to_text(const RendezvousTimeouts& timeouts);

struct Streams {
  bool out = false;
  bool err = false;
};

/// Returns the streams that "3" (all ranks) or "0:1,2:3" names for that local rank: 1 is stdout, 2
/// stderr, 3 both. Throws Error "launch.options".
LEVIN_API Streams parse_streams(std::string_view text, int64_t local_rank);

/// Throws Error "launch.options" for values that do not go together, naming them.
LEVIN_API void check_options(const LaunchOptions& options);

struct Endpoint {
  std::string host;
  int64_t port = 0;
};

/// "host", "host:port" or "[v6]:port". Throws Error "launch.options".
LEVIN_API Endpoint parse_endpoint(std::string_view text, int64_t default_port);

}  // namespace levin::launch
