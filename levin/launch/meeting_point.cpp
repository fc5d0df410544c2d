#include "levin/launch/meeting_point.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/files/posix_impl.h"

namespace levin::launch {
namespace {

using files::detail::Descriptor;
using std::chrono::steady_clock;

// torchrun's.
constexpr int64_t kEndpointPort = 29400;
constexpr int64_t kMasterPort = 29500;
constexpr int kConnectMs = 1000;
constexpr std::chrono::milliseconds kRetryPause(100);
constexpr std::chrono::seconds kAnswerTimeout(10);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  if (::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

// Only an address of this host can be bound.
bool is_this_host(const std::string& host) {
  const Addresses addresses = addresses_of({host, 0});
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::bind(socket.number(), at->ai_addr, at->ai_addrlen) == 0) return true;
  }
  return false;
}

bool answers(const addrinfo& address) {
  const Descriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd connected = {socket.number(), POLLOUT, 0};
  if (::poll(&connected, 1, kConnectMs) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool somebody_listens(const Endpoint& endpoint) {
  const Addresses addresses = addresses_of(endpoint);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    if (answers(*at)) return true;
  }
  return false;
}

Endpoint endpoint_of(const LaunchOptions& options) {
  if (!options.rdzv_endpoint.empty()) return parse_endpoint(options.rdzv_endpoint, kEndpointPort);
  return {options.master_addr, options.master_port.value_or(kMasterPort)};
}

// Nothing when another launcher on this host was first.
std::optional<SharedStore> try_to_serve(const Endpoint& endpoint, bool must) {
  try {
    return SharedStore::serve(
        comm::listen_on(endpoint.port, must ? "--master-port" : "--rdzv-endpoint"));
  } catch (const Error&) {
    if (must) throw;
    return std::nullopt;
  }
}

}  // namespace

MeetingPoint meet(const LaunchOptions& options, const std::atomic<bool>& leave) {
  Endpoint endpoint = endpoint_of(options);
  const std::chrono::duration<double> timeout(options.join_timeout_s);
  const auto deadline =
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(timeout);
  comm::wait_for_name(endpoint.host,
                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  const bool numbered = options.node_rank.has_value();
  if (numbered ? *options.node_rank == 0 : is_this_host(endpoint.host)) {
    if (auto store = try_to_serve(endpoint, numbered)) {
      endpoint.port = store->port();
      return {endpoint, std::move(*store), true};
    }
  }
  for (bool told = false; !somebody_listens(endpoint); told = true) {
    if (!told) log::info("waiting for the launcher at {}:{}", endpoint.host, endpoint.port);
    LEVIN_CHECK(!leave && steady_clock::now() < deadline, "launch.rendezvous",
                "nobody serves the rendezvous at {}:{} after {} s; start the launcher of that "
                "host, or check --rdzv-endpoint and --master-addr",
                endpoint.host, endpoint.port, options.join_timeout_s);
    std::this_thread::sleep_for(kRetryPause);
  }
  const auto patience = std::min<std::chrono::duration<double>>(timeout, kAnswerTimeout);
  return {endpoint,
          SharedStore::connect(endpoint.host, endpoint.port,
                               std::chrono::ceil<std::chrono::milliseconds>(patience)),
          false};
}

}  // namespace levin::launch
