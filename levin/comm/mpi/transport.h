#pragma once
// MpiTransport: messages by non-blocking MPI calls that are polled against a deadline.
//
//   MpiTransport transport(library(), ranks, std::chrono::minutes(30));

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "levin/comm/messages/transport.h"
#include "levin/comm/mpi/library.h"

namespace levin::comm::mpi {

/// After "comm.timeout" a late message may still write to the tensor: the process should end.
class MpiTransport final : public Transport {
 public:
  /// Of these ranks of the world. Throws "comm.timeout" when one of them does not come, and
  /// "comm.mismatch" when one calls it with other ranks.
  MpiTransport(Library& library, std::span<const int> ranks, std::chrono::milliseconds timeout);
  ~MpiTransport() override;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  std::unique_ptr<Exchange> start(const Announcement& operation, std::span<const Letter> receives,
                                  std::span<const Letter> sends, int tag) override;
  /// The communicator is kept: another one in its place would receive what was left in it.
  void abandon() override { is_abandoned_ = true; }
  void all_gather(const Announcement& operation, std::byte* data, std::span<const int64_t> counts,
                  int tag) override;
  void broadcast(const Announcement& operation, Elements data, int64_t root, int tag) override;

 private:
  class MpiExchange;

  /// Returns when all ranks of a group have come to make it.
  void gather_members(const Announcement& operation, std::span<const int> ranks);
  template <class Call>
  std::invoke_result_t<Call, Module&> ask(const Announcement& operation, const Call& call);
  void wait(const Announcement& operation, std::span<Request> requests);

  Library& library_;
  std::atomic<std::chrono::milliseconds> timeout_;
  Handle group_ = 0;
  int64_t rank_ = 0;
  int64_t size_ = 1;
  std::atomic<bool> is_abandoned_ = false;
};

}  // namespace levin::comm::mpi
