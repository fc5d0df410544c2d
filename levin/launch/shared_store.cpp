#include "levin/launch/shared_store.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <future>
#include <thread>

#include "levin/base/check.h"

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
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  // TCPStore waits for the first answer without a limit, for ever where no store listens.
  auto made = std::make_shared<std::promise<c10::intrusive_ptr<c10d::TCPStore>>>();
  auto store = made->get_future();
  std::thread([made, host, options] {
    try {
      made->set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
    } catch (...) {
      made->set_exception(std::current_exception());
    }
  }).detach();
  LEVIN_CHECK(store.wait_for(timeout) == std::future_status::ready, "launch.rendezvous",
              "what listens on {}:{} did not answer as a launcher's store within {} s; check "
              "--rdzv-endpoint",
              host, port, std::chrono::duration<double>(timeout).count());
  try {
    return SharedStore(std::make_unique<Impl>(store.get()));
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    LEVIN_FAIL("launch.rendezvous",
               "what listens on {}:{} is no store of a launcher ({}); check --rdzv-endpoint", host,
               port, what.substr(0, what.find('\n')));
  }
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
