#pragma once
// GlooTransport: messages over TCP by gloo, as LibTorch brings it.
//
//   GlooTransport transport(connection, {.members = {0, 2}, .first_tag = 8});   // ranks 0 and 2

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/comm/gloo/patience.h"
#include "levin/comm/messages/transport.h"

namespace levin::comm {

/// Which of a connection's ranks a transport joins, in its own order, of which this rank is one.
struct GlooPart {
  std::vector<int64_t> members;
  int first_tag = 0;  ///< of four, which no other transport over the same connection takes
};

/// After an error the connection serves no more.
class GlooTransport final : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> connection, GlooPart part,
                std::chrono::milliseconds timeout);

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return std::ssize(part_.members); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  /// Empty letters are not sent.
  std::unique_ptr<Exchange> start(const Announcement& operation, std::span<const Letter> receives,
                                  std::span<const Letter> sends, int tag) override;

 private:
  c10::intrusive_ptr<c10d::Backend> connection_;
  GlooPart part_;
  std::atomic<std::chrono::milliseconds> timeout_;  ///< of what this process is awake
  Patience patience_;
  int64_t rank_ = 0;  ///< among the members
};

}  // namespace levin::comm
