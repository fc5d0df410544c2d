#include "levin/launch/rendezvous/shared_store.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <set>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/reach.h"
#include "levin/comm/store.h"
#include "levin/launch/rendezvous/seal.h"
#include "levin/launch/rendezvous/witness.h"

namespace levin::launch {

namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr size_t kLongestWord = size_t{1} << 20;  // a launcher's longest holds lines of stderr

}  // namespace

struct SharedStore::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::string token;
  std::unique_ptr<Witness> witness = nullptr;  ///< set if the store is served here
  std::set<std::string> strange = {};          ///< keys of words passed over, for one line each
};

SharedStore::SharedStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedStore::~SharedStore() = default;
SharedStore::SharedStore(SharedStore&&) noexcept = default;
SharedStore& SharedStore::operator=(SharedStore&&) noexcept = default;

// Asked before the store's own client waits for its answer, minutes and deaf to signals.
SharedStore SharedStore::serve(comm::ListeningSocket socket, std::string token) {
  LEVIN_CHECK(
      comm::somebody_listens(kLoopback, socket.port()), "launch.loopback",
      "this process cannot reach its own port {} on {}; bring the loopback interface up (ip "
      "link set lo up), or start where there is one",
      socket.port(), kLoopback);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(socket.port());
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = socket.descriptor();
  auto store = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
  socket.release();  // the server closes it
  auto witness = std::make_unique<Witness>(store->getPort());
  return SharedStore(
      std::make_unique<Impl>(Impl{std::move(store), std::move(token), std::move(witness)}));
}

SharedStore SharedStore::connect(const std::string& host, int64_t port,
                                 std::chrono::milliseconds timeout, std::string token) {
  auto store = comm::connect_tcp_store(host, port, timeout, "--rdzv-endpoint");
  return SharedStore(std::make_unique<Impl>(Impl{
      c10::static_intrusive_pointer_cast<c10d::TCPStore>(std::move(store)), std::move(token)}));
}

int64_t SharedStore::port() const { return impl_->store->getPort(); }

void SharedStore::set(const std::string& key, const std::string& value) {
  const std::string word = sealed(impl_->token, key, value);
  impl_->store->set(key, std::vector<uint8_t>(word.begin(), word.end()));
}

std::optional<std::string> SharedStore::find(const std::string& key) {
  if (!impl_->store->check({key})) return std::nullopt;
  const auto value = impl_->store->get(key);
  const std::string_view word(reinterpret_cast<const char*>(value.data()), value.size());
  auto text = word.size() > kLongestWord ? std::nullopt : opened(impl_->token, key, word);
  if (!text && impl_->strange.insert(key).second) {
    log::warn(
        "ignored an unsigned value in the store of the job ({} bytes); no launcher of the job "
        "wrote it",
        word.size());
  }
  return text;
}

void SharedStore::know(const std::string& address) {
  if (impl_->witness) impl_->witness->know(address);
}

int64_t SharedStore::add(const std::string& key, int64_t amount) {
  return impl_->store->add(key, amount);
}

}  // namespace levin::launch
