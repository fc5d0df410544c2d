#pragma once
// MessageCollectives: collectives made of messages, over any transport. Sums are levin's own: in
// rank order, which neither MPI nor gloo promises, and of all types.
//
//   MessageCollectives group(std::move(transport), algorithms_of(Carrier::kMpi, ranks));

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/group_failure.h"
#include "levin/comm/messages/algorithms.h"
#include "levin/comm/messages/transport.h"

namespace levin::comm {

class MessageCollectives final : public Collectives {
 public:
  MessageCollectives(std::unique_ptr<Transport> transport, const Algorithms& algorithms);

  void set_timeout(std::chrono::milliseconds timeout) override { transport_->set_timeout(timeout); }
  void meet(const Announcement& what) override;
  void all_reduce(Elements data, Reduction reduction) override;
  int64_t bytes_to_join() const override { return int64_t{32} << 20; }
  void reduce(Elements data, int64_t root, Reduction reduction) override;
  void broadcast(Elements data, int64_t root) override;
  void all_gather(Elements result, Elements part, Counts counts) override;
  void gather(std::span<const Elements> results, Elements part, int64_t root) override;
  void scatter(Elements result, std::span<const Elements> parts, int64_t root) override;
  void reduce_scatter(Elements result, Elements data, Counts counts, Reduction reduction) override;
  void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) override;
  void send(Elements data, int64_t to, int64_t tag) override;
  void receive(Elements data, int64_t from, int64_t tag) override;

 private:
  using Sources = std::vector<const std::byte*>;

  /// Runs an operation; what it throws closes the group.
  template <class Body>
  void run(const Body& body);

  /// Compares what all are about to do. Tensors of which the longest is small come along:
  /// everybody's then, else nothing.
  Sources compare(const Announcement& announcement, Elements mine, int64_t longest);
  Sources compare(const Announcement& announcement, Elements mine = {}) {
    return compare(announcement, mine, mine.count);
  }
  Sources gather_small(const Announcement& operation, Elements mine);
  /// compare() and gather_small() where these pay, else nothing.
  Sources compare_small(const Announcement& announcement, Elements mine);

  /// Everybody's elements of this rank's share, on their way into memory that is used in turns.
  struct Parts {
    std::unique_ptr<Transport::Exchange> exchange;
    Elements mine;
    Sources sources;
  };
  /// parts[i] is what this rank has of rank i's share.
  Parts start_parts(const Announcement& operation, std::vector<Elements> parts);
  void finish_parts(Parts& parts, Elements result, Reduction reduction);
  void check_lengths(const Announcement& operation, std::span<const Elements> results,
                     std::span<const Elements> parts);
  std::vector<Letter> letters(std::span<const Elements> elements) const;
  /// The parts of a tensor that each rank reduces.
  std::vector<Elements> shares(Elements elements) const;

  std::unique_ptr<Transport> transport_;
  Algorithms algorithms_;
  int64_t rank_;
  int64_t size_;
  int64_t number_ = 0;  ///< collectives begun
  std::vector<std::byte> scratch_;
  std::array<std::vector<std::byte>, 2> turns_;
  size_t turn_ = 0;
  GroupFailure failure_;
};

}  // namespace levin::comm
