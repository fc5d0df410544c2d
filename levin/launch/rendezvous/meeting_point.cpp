#include "levin/launch/rendezvous/meeting_point.h"

#include <algorithm>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/comm/reach.h"

namespace levin::launch {
namespace {

using std::chrono::steady_clock;

// torchrun's.
constexpr int64_t kEndpointPort = 29400;
constexpr int64_t kMasterPort = 29500;
constexpr std::chrono::milliseconds kRetryPause(100);
constexpr std::chrono::seconds kAnswerTimeout(10);

Endpoint endpoint_of(const LaunchOptions& options) {
  if (!options.rdzv_endpoint.empty()) return parse_endpoint(options.rdzv_endpoint, kEndpointPort);
  return {options.master_addr, options.master_port.value_or(kMasterPort)};
}

// Nothing when another launcher on this host was first.
std::optional<SharedStore> try_to_serve(const Endpoint& endpoint, const std::string& token,
                                        bool must) {
  try {
    return SharedStore::serve(
        comm::listen_on(
            endpoint.port, must ? "--master-port" : "--rdzv-endpoint",
            endpoint.host == "127.0.0.1" ? comm::Reach::kLoopback : comm::Reach::kNetwork),
        token);
  } catch (const Error& error) {
    if (must || error.id() != "comm.environment.port") throw;
    return std::nullopt;
  }
}

}  // namespace

MeetingPoint meet(const LaunchOptions& options, const std::atomic<bool>& leave) {
  Endpoint endpoint = endpoint_of(options);
  const std::chrono::duration<double> timeout(options.timeouts.join_s);
  const auto deadline =
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(timeout);
  comm::wait_for_name(endpoint.host,
                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  const bool numbered = options.node_rank.has_value();
  if (numbered ? *options.node_rank == 0 : comm::is_this_host(endpoint.host)) {
    if (auto store = try_to_serve(endpoint, options.token, numbered)) {
      endpoint.port = store->port();
      return {endpoint, std::move(*store), true};
    }
  }
  for (bool told = false; !comm::somebody_listens(endpoint.host, endpoint.port); told = true) {
    if (!told) log::info("waiting for the launcher at {}:{}", endpoint.host, endpoint.port);
    LEVIN_CHECK(!leave && steady_clock::now() < deadline, "launch.rendezvous",
                "nobody serves the rendezvous at {}:{} after {} s; start the launcher of that "
                "host, or check --rdzv-endpoint and --master-addr",
                endpoint.host, endpoint.port, options.timeouts.join_s);
    std::this_thread::sleep_for(kRetryPause);
  }
  const auto patience = std::min<std::chrono::duration<double>>(timeout, kAnswerTimeout);
  return {
      endpoint,
      SharedStore::connect(endpoint.host, endpoint.port,
                           std::chrono::ceil<std::chrono::milliseconds>(patience), options.token),
      false};
}

}  // namespace levin::launch
