#include "levin/comm/store.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "levin/base/check.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/token.h"
#include "levin/comm/file_store/file_store.h"
#include "levin/comm/reach.h"

namespace levin::comm {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
constexpr std::string_view kFile = "file://";
constexpr const char* kHere = "127.0.0.1";
constexpr std::chrono::milliseconds kRetryPause(20);

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

c10d::TCPStoreOptions options_for(int64_t port, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

/// Returns nothing where the port is taken, perhaps by this process' own server for a run before.
std::optional<ListeningSocket> listen_unless_served(int64_t port, Reach reach) {
  try {
    return listen_on(port, "MASTER_PORT", reach);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// One server a port serves all runs of this process, one after the other or at a time.
StorePointer serve(int64_t port, std::chrono::milliseconds timeout, Reach reach) {
  auto options = options_for(port, timeout);
  options.isServer = true;
  options.multiTenant = true;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::optional<ListeningSocket> socket = listen_unless_served(port, reach);
  if (socket) options.masterListenFd = socket->descriptor();
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(kHere, options);
    if (socket) socket->release();  // the server closes it
    return store;
  } catch (const std::exception& error) {
    LEVIN_FAIL("comm.environment.port",
               "rank 0 cannot serve the store on port {} ({}); set MASTER_PORT to a free one", port,
               first_line(error.what()));
  }
}

std::string prefix_of(const Environment& environment) {
  const std::string job = fmt::format("levin/{}/{}", environment.run_id, environment.restart_count);
  return environment.token.empty() ? job : job + "/" + key_word(environment.token);
}

/// "localhost" is two addresses where there is IPv6.
std::string master_of(const Environment& environment) {
  return environment.master_address == "localhost" ? kHere : environment.master_address;
}

/// One for all runs of this process: the file goes when the last rank closes it, which may be
/// before another has opened it for the next run.
StorePointer open_file(const std::string& path, int64_t size) {
  static std::mutex mutex;
  static std::map<std::string, StorePointer> open;
  const std::lock_guard lock(mutex);
  StorePointer& store = open[path];
  if (store == nullptr) {
    store = c10::make_intrusive<FileStore>(path, size);
  }
  return store;
}

StorePointer open_store(const Environment& environment, std::chrono::milliseconds timeout) {
  if (!environment.store_file.empty()) return open_file(environment.store_file, /*size=*/0);
  const std::string address = master_of(environment);
  if (address.starts_with(kFile)) {
    return open_file(address.substr(kFile.size()), environment.rank.world_size);
  }
  const bool serves = environment.rank.is_global_zero() && !environment.launcher_hosts_store;
  const Reach reach = address == kHere ? Reach::kLoopback : Reach::kNetwork;
  if (serves) return serve(environment.master_port, timeout, reach);
  return connect_tcp_store(address, environment.master_port, timeout,
                           "MASTER_ADDR and MASTER_PORT");
}

}  // namespace

StorePointer connect_tcp_store(const std::string& host, int64_t port,
                               std::chrono::milliseconds timeout, std::string_view what_to_check) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  wait_for_name(host, timeout);
  while (!somebody_listens(host, port)) {
    LEVIN_CHECK(std::chrono::steady_clock::now() < deadline, "comm.store",
                "no store answers on {}:{} after {} s; check that its host runs, and check {}",
                host, port, std::chrono::duration<double>(timeout).count(), what_to_check);
    std::this_thread::sleep_for(kRetryPause);
  }
  // TCPStore waits for the first answer without a limit, for ever where no store listens.
  auto made = std::make_shared<std::promise<StorePointer>>();
  auto store = made->get_future();
  std::thread([made, host, options = options_for(port, timeout)] {
    try {
      made->set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
    } catch (...) {
      made->set_exception(std::current_exception());
    }
  }).detach();
  LEVIN_CHECK(store.wait_for(timeout + std::chrono::seconds(1)) == std::future_status::ready,
              "comm.store",
              "the program that listens on {}:{} did not answer as a store within {} s; check {}",
              host, port, std::chrono::duration<double>(timeout).count(), what_to_check);
  try {
    return store.get();
  } catch (const std::exception& error) {
    LEVIN_FAIL("comm.store", "the program that listens on {}:{} is not a store ({}); check {}",
               host, port, first_line(error.what()), what_to_check);
  }
}

StorePointer connect_store(const Environment& environment, std::chrono::milliseconds timeout) {
  if (environment.rank.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  auto store = open_store(environment, timeout);
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(prefix_of(environment), std::move(store));
}

}  // namespace levin::comm
