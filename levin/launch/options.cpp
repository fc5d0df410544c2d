#include "levin/launch/options.h"

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/options/option_group.h"
#include "levin/launch/node/binding.h"

namespace levin::launch {
namespace {

template <class T>
T value_in(std::string_view text, std::string_view what) {
  T value{};
  try {
    from_text(text, value);
  } catch (const Error&) {
    LEVIN_FAIL("launch.options", "{}: got '{}', wanted a number", what, text);
  }
  return value;
}

std::vector<std::string_view> at_commas(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    items.push_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return items;
}

Streams streams_of(std::string_view number) {
  const auto bits = value_in<int64_t>(number, "--redirects or --tee");
  LEVIN_CHECK(bits >= 0 && bits <= 3, "launch.options",
              "--redirects and --tee take 0 (none), 1 (stdout), 2 (stderr) or 3 (both), got {}",
              bits);
  return {(bits & 1) != 0, (bits & 2) != 0};
}

}  // namespace

void LaunchOptions::fields(FieldVisitor& field) {
  option_group(field, "ranks");
  field("nnodes", nnodes, "number of nodes, or MIN:MAX");
  field("max_restarts", max_restarts, "maximum number of restarts of the ranks after a failure");
  field("shutdown_timeout", shutdown_timeout_s,
        "seconds that ranks have after SIGTERM to save, before SIGKILL");
  field("failure_timeout", failure_timeout_s,
        "seconds from SIGTERM to SIGKILL for the other ranks after one has failed");
  field("numa_binding", numa_binding,
        "CPUs to bind each rank to: none, node, socket, core-complex, exclusive");
  option_group(field, "rendezvous");
  field("node_rank", node_rank, "rank of this node; unset: order of arrival");
  field("rdzv_endpoint", rdzv_endpoint, "HOST[:PORT] where the nodes meet");
  field("rdzv_id", rdzv_id, "job id, the same on all nodes");
  field("rdzv_conf", timeouts, "rendezvous timeouts, seconds");
  field("master_addr", master_addr, "host of node 0, instead of --rdzv-endpoint");
  field("master_port", master_port, "port of --master-addr; unset on one node: a free port");
  field("monitor_interval", monitor_interval_s, "seconds between checks of the other nodes");
  field("token_from_input", token_from_input, "");
  field("signals_from_input", signals_from_input, "");
  option_group(field, "output");
  field("log_dir", log_dir, "folder DIR for logs: DIR/ID/attempt_N/RANK/{stdout,stderr}.log");
  field("redirects", redirects,
        "write streams to files only: 1 stdout, 2 stderr, 3 both; RANK:N,... for some ranks", "r");
  field("tee", tee, "write streams to files and to the console; values as for --redirects", "t");
  field("local_ranks_filter", local_ranks_filter,
        "show only these local ranks on the console, for example 0,2");
  option_group(field, "");
}

void from_text(std::string_view text, NodeRange& range) {
  const size_t colon = text.find(':');
  range.least = value_in<int64_t>(text.substr(0, colon), "--nnodes");
  range.most = colon == std::string_view::npos
                   ? range.least
                   : value_in<int64_t>(text.substr(colon + 1), "--nnodes");
  LEVIN_CHECK(range.least >= 1 && range.least <= range.most, "launch.options",
              "--nnodes: got '{}', wanted a number or MIN:MAX with 1 <= MIN <= MAX", text);
}

std::string to_text(const NodeRange& range) {
  return range.elastic() ? fmt::format("{}:{}", range.least, range.most)
                         : std::to_string(range.least);
}

void from_text(std::string_view text, RendezvousTimeouts& timeouts) {
  timeouts = {};
  for (const std::string_view item : at_commas(text)) {
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    double* target = key == "join_timeout" || key == "timeout" ? &timeouts.join_s
                     : key == "last_call_timeout"              ? &timeouts.last_call_s
                     : key == "node_timeout"                   ? &timeouts.node_s
                                                               : nullptr;
    LEVIN_CHECK(target != nullptr, "launch.options",
                "--rdzv-conf: got '{}', wanted join_timeout=S, last_call_timeout=S or "
                "node_timeout=S",
                item);
    *target = value_in<double>(value, "--rdzv-conf");
    LEVIN_CHECK(*target > 0, "launch.options", "--rdzv-conf: got '{}', wanted seconds above 0",
                item);
  }
}

std::string to_text(const RendezvousTimeouts& timeouts) {
  return fmt::format("join_timeout={},last_call_timeout={},node_timeout={}",
                     to_text(timeouts.join_s), to_text(timeouts.last_call_s),
                     to_text(timeouts.node_s));
}

Streams parse_streams(std::string_view text, int64_t local_rank) {
  if (text.find(':') == std::string_view::npos) return streams_of(text);
  Streams own;
  for (const std::string_view item : at_commas(text)) {
    const size_t colon = item.find(':');
    LEVIN_CHECK(colon != std::string_view::npos, "launch.options",
                "--redirects and --tee: got '{}', wanted a number or RANK:NUMBER,...", text);
    const auto rank = value_in<int64_t>(item.substr(0, colon), "--redirects and --tee");
    const Streams streams = streams_of(item.substr(colon + 1));
    if (rank == local_rank) own = streams;
  }
  return own;
}

void check_options(const LaunchOptions& options) {
  LEVIN_CHECK(!options.command.empty(), "launch.options",
              "no program to run; give it after the options: levin run -n 4 ./train --epochs 3");
  LEVIN_CHECK(options.nproc_per_node >= 1, "launch.options",
              "--nproc-per-node: got {}, wanted at least 1", options.nproc_per_node);
  LEVIN_CHECK(options.max_restarts >= 0, "launch.options",
              "--max-restarts: got {}, wanted at least 0", options.max_restarts);
  LEVIN_CHECK(options.monitor_interval_s > 0, "launch.options",
              "--monitor-interval: got {}, wanted seconds above 0", options.monitor_interval_s);
  LEVIN_CHECK(options.shutdown_timeout_s >= 0, "launch.options",
              "--shutdown-timeout: got {}, wanted seconds, at least 0", options.shutdown_timeout_s);
  LEVIN_CHECK(options.failure_timeout_s >= 0, "launch.options",
              "--failure-timeout: got {}, wanted seconds, at least 0", options.failure_timeout_s);
  LEVIN_CHECK(options.timeouts.node_s > 0, "launch.options",
              "--rdzv-conf: got node_timeout={}, wanted seconds above 0", options.timeouts.node_s);
  const int64_t port = options.master_port.value_or(0);
  LEVIN_CHECK(port >= 0 && port <= 65535, "launch.options",
              "--master-port: got {}, wanted a port from 0 to 65535", port);
  const bool files = options.redirects != "0" || options.tee != "0";
  LEVIN_CHECK(!files || !options.log_dir.empty(), "launch.options",
              "--redirects and --tee write files; name their folder with --log-dir");
  for (int64_t rank = 0; rank < options.nproc_per_node; ++rank) {
    static_cast<void>(parse_streams(options.redirects, rank));
    static_cast<void>(parse_streams(options.tee, rank));
  }
  const bool met = !options.rdzv_endpoint.empty() || !options.master_addr.empty();
  LEVIN_CHECK(options.nnodes.most == 1 || met, "launch.options",
              "{} nodes need a rendezvous endpoint; give every node the same --rdzv-endpoint "
              "HOST:PORT, or --master-addr HOST",
              options.nnodes.most);
  LEVIN_CHECK(
      options.rdzv_endpoint.empty() || options.master_addr.empty(), "launch.options",
      "--rdzv-endpoint and --master-addr both name the rendezvous endpoint; give one of them");
  LEVIN_CHECK(
      !options.node_rank || (*options.node_rank >= 0 && *options.node_rank < options.nnodes.most),
      "launch.options", "--node-rank: got {} of {} nodes, wanted one from 0 to {}",
      options.node_rank.value_or(0), options.nnodes.most, options.nnodes.most - 1);
  LEVIN_CHECK(!options.master_addr.starts_with('-'), "launch.options",
              "--master-addr: got '{}', wanted a host name that does not begin with -",
              options.master_addr);
  check_binding(options.numa_binding);
}

Endpoint parse_endpoint(std::string_view text, int64_t default_port) {
  Endpoint endpoint{std::string(text), default_port};
  const size_t colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  const size_t close = text.find(']');
  if (bracketed && close != std::string_view::npos) {
    endpoint.host = text.substr(1, close - 1);
  } else if (colon != std::string_view::npos && text.find(':') == colon) {
    endpoint.host = text.substr(0, colon);
  }
  if (colon != std::string_view::npos && (bracketed ? colon > close : text.find(':') == colon)) {
    endpoint.port = value_in<int64_t>(text.substr(colon + 1), "the port of an endpoint");
  }
  LEVIN_CHECK(!endpoint.host.empty() && endpoint.host[0] != '-' && endpoint.port >= 0 &&
                  endpoint.port <= 65535,
              "launch.options", "got the endpoint '{}', wanted HOST:PORT with a port below 65536",
              text);
  return endpoint;
}

}  // namespace levin::launch
