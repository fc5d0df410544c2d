#pragma once
// GlooTransport: messages over TCP by gloo, as LibTorch brings it.
//
//   GlooTransport transport(connection, timeout);   // of the connection's ranks

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "levin/comm/gloo/patience.h"
#include "levin/comm/messages/transport.h"

namespace levin::comm {

/// After an error the connection serves no more.
class GlooTransport final : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> connection, std::chrono::milliseconds timeout);

  int64_t rank() const override { return connection_->getRank(); }
  int64_t size() const override { return connection_->getSize(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  /// Empty letters are not sent.
  std::unique_ptr<Exchange> start(const Announcement& operation, std::span<const Letter> receives,
                                  std::span<const Letter> sends, int tag) override;

 private:
  c10::intrusive_ptr<c10d::Backend> connection_;
  std::atomic<std::chrono::milliseconds> timeout_;  ///< of what this process is awake
  Patience patience_;
};

}  // namespace levin::comm
