#pragma once
// HierarchicalCollectives: shared memory within a host, messages between hosts. Each byte crosses
// the network between two hosts as rarely as the collective allows, and a host's ranks share that
// work.
//
//   HierarchicalCollectives group(layout, rank, std::move(local), across, timeout);
//
// Follows the two-level algorithms of MPI libraries and NCCL (reduce-scatter on the host,
// all-reduce between ranks of one place, all-gather on the host).
//
// Who talks over hosts: the first rank of each, from the start on; the ranks of one place on all
// hosts, each pair of ranks that sends messages, and all ranks together (all_to_all alone), each
// from the first time on.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/group_failure.h"
#include "levin/comm/hierarchical/layout.h"

namespace levin::comm {

/// Ranks over hosts, this one among them, that are to talk.
struct RanksAcross {
  std::vector<int64_t> members;
  std::string name;                 ///< groups of different names do not meet
  std::function<void()> look = {};  ///< called while others are waited for; ends that by throwing
};

/// How the ranks of one host reach the ranks of other hosts.
struct Across {
  /// All of the members call it, and then have collectives over these ranks, which count from 0.
  std::function<std::unique_ptr<Collectives>(const RanksAcross&, std::chrono::milliseconds timeout)>
      connect;
  /// Two ranks may connect at any time, whatever else they do. Else messages go by the group of all
  /// ranks, which is made at the start.
  bool connects_pairs = false;
};

/// Sums go in rank order within a host, then in the order of hosts.
class HierarchicalCollectives final : public Collectives {
 public:
  /// local: of this host's ranks; none for a rank alone on its host. across may be empty for one
  /// host. Throws what connecting the first ranks of the hosts throws.
  HierarchicalCollectives(HostLayout layout, int64_t rank, std::unique_ptr<Collectives> local,
                          Across across, std::chrono::milliseconds timeout);

  void set_timeout(std::chrono::milliseconds timeout) override;
  void meet(const Announcement& what) override;
  void all_reduce(Elements data, Reduction reduction) override;
  int64_t bytes_to_join() const override { return int64_t{1} << 20; }
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
  /// Groups over hosts.
  enum Group { kFirst, kSamePlace, kAll, kNumGroups };
  using Body = std::function<void(Collectives&)>;
  struct Pair {
    std::mutex connecting;
    std::unique_ptr<Collectives> group;  ///< under mutex_ too
  };

  /// Runs a body with what it throws closing the group.
  void run(const std::function<void()>& body);
  /// Runs a body with this host's ranks, where there are several, and with those of a group over
  /// hosts, where there are several; an error says which ranks it counts.
  void on_host(const Body& body);
  void over_hosts(Group which, const Body& body);
  /// Between this rank and one of another host.
  void with(int64_t peer, const std::function<void(Collectives&, int64_t number)>& body);

  std::vector<int64_t> members_of(Group which) const;
  void connect(Group which);
  /// Called before ranks of a group connect. Existing groups check that all ranks have come to this
  /// operation, since they know at once of a rank that is gone.
  void prepare(Group which, const Announcement& what);
  void agree(const Announcement& what);
  Collectives& pair_with(int64_t peer);

  bool is_first() const { return place_ == 0; }
  bool is_one_host() const { return num_hosts_ == 1; }
  int64_t host_of(int64_t rank) const { return layout_.host_of[static_cast<size_t>(rank)]; }
  int64_t place_of(int64_t rank) const { return layout_.place_of[static_cast<size_t>(rank)]; }
  std::span<const int64_t> own_host() const { return ranks_of(host_of(rank_)); }
  std::span<const int64_t> ranks_of(int64_t host) const {
    return layout_.hosts[static_cast<size_t>(host)];
  }

  void all_reduce_by_first(Elements data, Reduction reduction);
  void all_reduce_by_places(Elements data, Reduction reduction);
  void all_gather_by_first(Elements result, Elements part, Counts counts);
  void all_gather_by_places(Elements result, Elements part, Counts counts);
  void reduce_scatter_by_first(Elements result, Elements data, Counts counts, Reduction reduction);
  void reduce_scatter_by_places(Elements result, Elements data, Counts counts, Reduction reduction);
  /// On a host: what the rank of one place has is that of another's.
  void pass(Elements from_data, int64_t from, Elements to_data, int64_t to);

  enum Purpose { kSummed, kOrdered, kPlace, kBlock, kNumPurposes };
  /// Memory until the next call for that purpose.
  Elements scratch(Purpose purpose, at::ScalarType type, int64_t count);

  HostLayout layout_;
  int64_t rank_;
  int64_t place_;
  int64_t num_hosts_;
  std::vector<int64_t> by_hosts_;  ///< all ranks, host by host
  std::unique_ptr<Collectives> local_;
  Across across_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::array<std::shared_ptr<Collectives>, kNumGroups> groups_;
  std::array<bool, kNumGroups> prepared_ = {};
  std::mutex mutex_;  ///< guards pairs_
  std::map<int64_t, Pair> pairs_;
  std::array<std::vector<std::byte>, kNumPurposes> scratch_;
  GroupFailure failure_;
};

}  // namespace levin::comm
