#pragma once
// HierarchicalCollectives: shared memory within a host, messages between hosts. Each byte crosses
// the network between two hosts as rarely as the collective allows, and a host's ranks share that
// work.
//
//   HierarchicalCollectives group(layout, rank, std::move(local), across);
//
// Follows the two-level algorithms of MPI libraries and NCCL (reduce-scatter on the host,
// all-reduce between ranks of one place, all-gather on the host).

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/group_failure.h"
#include "levin/comm/hierarchical/layout.h"

namespace levin::comm {

/// Sums go in rank order within a host, then in the order of hosts.
class HierarchicalCollectives final : public Collectives {
 public:
  /// The collectives of some ranks over the network, of which this rank is one; those of different
  /// numbers do not meet, and no two ranks meet in two groups of one number.
  using Across = std::function<std::unique_ptr<Collectives>(const std::vector<int64_t>& members,
                                                            int64_t number)>;

  /// local: of this host's ranks; none for a rank alone on its host. across may be empty for one
  /// host.
  HierarchicalCollectives(HostLayout layout, int64_t rank, std::unique_ptr<Collectives> local,
                          Across across);

  void set_timeout(std::chrono::milliseconds timeout) override;
  void barrier() override;
  void all_reduce(Elements data, Reduction reduction) override;
  int64_t bytes_to_join() const override { return int64_t{1} << 20; }
  void reduce(Elements data, int64_t root, Reduction reduction) override;
  void broadcast(Elements data, int64_t root) override;
  void all_gather(Elements result, Elements part) override;
  void all_gather(std::span<const Elements> results, Elements part) override;
  void gather(std::span<const Elements> results, Elements part, int64_t root) override;
  void scatter(Elements result, std::span<const Elements> parts, int64_t root) override;
  void reduce_scatter(Elements result, Elements data, Reduction reduction) override;
  void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) override;
  void send(Elements data, int64_t to, int64_t tag) override;
  void receive(Elements data, int64_t from, int64_t tag) override;

 private:
  /// Runs a body with what it throws closing the group.
  template <class Body>
  void run(const Body& body);
  /// Runs a body with this host's ranks, where there are several, and with those of some ranks of
  /// all hosts, where there are several; an error says which ranks it counts.
  template <class Body>
  void on_host(const Body& body);
  template <class Body>
  void over_hosts(const std::vector<int64_t>& members, int64_t number, const Body& body);

  bool is_first() const { return place_ == 0; }
  std::span<const int64_t> own_host() const;
  void all_reduce_by_first(Elements data, Reduction reduction);
  void all_reduce_by_places(Elements data, Reduction reduction);

  HostLayout layout_;
  int64_t rank_;
  int64_t place_;
  int64_t num_hosts_;
  std::unique_ptr<Collectives> local_;
  Across across_;
  std::unique_ptr<Collectives> flat_;  ///< of all ranks, over the network
  std::vector<int64_t> all_ranks_;
  std::map<int64_t, std::unique_ptr<Collectives>> groups_;  ///< over hosts, by number
  std::chrono::milliseconds timeout_ = {};                  ///< 0: as across gives it
  std::vector<std::byte> scratch_;
  GroupFailure failure_;
};

}  // namespace levin::comm
