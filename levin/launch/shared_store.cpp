#include "levin/launch/shared_store.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "levin/comm/store.h"

namespace levin::launch {

struct SharedStore::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

SharedStore::SharedStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedStore::~SharedStore() = default;
SharedStore::SharedStore(SharedStore&&) noexcept = default;
SharedStore& SharedStore::operator=(SharedStore&&) noexcept = default;

SharedStore SharedStore::serve(comm::ListeningSocket socket) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(socket.port());
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = socket.descriptor();
  auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  socket.release();  // the server closes it
  return SharedStore(std::make_unique<Impl>(std::move(store)));
}

SharedStore SharedStore::connect(const std::string& host, int64_t port,
                                 std::chrono::milliseconds timeout) {
  auto store = comm::connect_tcp_store(host, port, timeout, "--rdzv-endpoint");
  return SharedStore(
      std::make_unique<Impl>(c10::static_intrusive_pointer_cast<c10d::TCPStore>(std::move(store))));
}

int64_t SharedStore::port() const { return impl_->store->getPort(); }

void SharedStore::set(const std::string& key, const std::string& value) {
  impl_->store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> SharedStore::find(const std::string& key) {
  if (!impl_->store->check({key})) return std::nullopt;
  const auto value = impl_->store->get(key);
  return std::string(value.begin(), value.end());
}

int64_t SharedStore::add(const std::string& key, int64_t amount) {
  return impl_->store->add(key, amount);
}

}  // namespace levin::launch
