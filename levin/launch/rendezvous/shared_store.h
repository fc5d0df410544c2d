#pragma once
// SharedStore: c10d's TCPStore, as the launchers of a job use it. The ranks use the same one.
// Launchers seal their words with the job's token; words without the seal are ignored.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "levin/comm/environment/port.h"

namespace levin::launch {

/// Every call but serve throws c10d's exceptions when the store cannot be reached.
class SharedStore {
 public:
  /// Serves it from this process, until it is destroyed. Throws Error "launch.loopback" where this
  /// process cannot reach it.
  static SharedStore serve(comm::ListeningSocket socket, std::string token);
  /// Throws Error "comm.store" when what listens there is no store.
  static SharedStore connect(const std::string& host, int64_t port,
                             std::chrono::milliseconds timeout, std::string token);
  ~SharedStore();
  SharedStore(SharedStore&&) noexcept;
  SharedStore& operator=(SharedStore&&) noexcept;

  int64_t port() const;
  void set(const std::string& key, const std::string& value);
  /// Returns nothing if nobody, or only a stranger, has set the key.
  std::optional<std::string> find(const std::string& key);
  /// A launcher of the job calls from that address; others are named in the log, where this process
  /// serves the store.
  void know(const std::string& address);
  /// Gives the sum.
  int64_t add(const std::string& key, int64_t amount);

 private:
  struct Impl;
  explicit SharedStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::launch
