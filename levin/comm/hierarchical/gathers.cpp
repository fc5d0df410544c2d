// HierarchicalCollectives: what brings parts together and deals them out.

#include <utility>

#include "levin/comm/hierarchical/collectives.h"
#include "levin/comm/hierarchical/order.h"

namespace levin::comm {

void HierarchicalCollectives::all_gather(Elements result, Elements part, Counts counts) {
  run([&] {
    if (is_one_host()) {
      return on_host([&](Collectives& group) { group.all_gather(result, part, counts); });
    }
    const auto what = announce_parts("all_gather", part, counts);
    if (!are_equal(counts)) agree(what);
    if (!layout_.is_even()) return all_gather_by_first(result, part, counts);
    prepare(kSamePlace, what);
    all_gather_by_places(result, part, counts);
  });
}

// Each host's ranks bring the parts of their places from all hosts, then share them.
void HierarchicalCollectives::all_gather_by_places(Elements result, Elements part, Counts counts) {
  if (local_ == nullptr) {
    return over_hosts(kSamePlace,
                      [&](Collectives& group) { group.all_gather(result, part, counts); });
  }
  const auto at_place = counts_of(layout_.ranks_at(place_), counts);
  const Elements brought = scratch(kPlace, part.type, sum_of(at_place));
  over_hosts(kSamePlace, [&](Collectives& group) { group.all_gather(brought, part, at_place); });
  const std::vector<Elements> mine = cut(brought, at_place);
  const bool in_order = is_rank_order(by_hosts_);
  const Elements ordered = in_order ? result : scratch(kOrdered, part.type, result.count);
  int64_t begin = 0;
  for (int64_t host = 0; host < num_hosts_; ++host) {
    const auto of_host = counts_of(ranks_of(host), counts);
    const Elements block = ordered.part(begin, sum_of(of_host));
    on_host([&](Collectives& group) {
      group.all_gather(block, mine[static_cast<size_t>(host)], of_host);
    });
    begin += block.count;
  }
  if (!in_order) put_in_rank_order(by_hosts_, ordered, result, counts);
}

// The first ranks bring the parts of all hosts.
void HierarchicalCollectives::all_gather_by_first(Elements result, Elements part, Counts counts) {
  const bool in_order = is_rank_order(by_hosts_);
  const Elements ordered = in_order ? result : scratch(kOrdered, part.type, result.count);
  const auto of_hosts = counts_of_hosts(layout_, counts);
  const Elements block = cut(ordered, of_hosts)[static_cast<size_t>(host_of(rank_))];
  if (local_ == nullptr && block.data != part.data) {
    copy_bytes(block.data, part.data, part.bytes());
  }
  const auto mine = counts_of(own_host(), counts);
  on_host([&](Collectives& group) { group.all_gather(block, part, mine); });
  if (is_first()) {
    over_hosts(kFirst, [&](Collectives& group) { group.all_gather(ordered, block, of_hosts); });
  }
  on_host([&](Collectives& group) { group.broadcast(ordered, 0); });
  if (!in_order) put_in_rank_order(by_hosts_, ordered, result, counts);
}

void HierarchicalCollectives::pass(Elements from_data, int64_t from, Elements to_data, int64_t to) {
  if (from == to) return;
  const std::vector<Elements> none(own_host().size(), Elements{nullptr, from_data.type, 0});
  auto parts = none, results = none;
  if (place_ == from) parts[static_cast<size_t>(to)] = from_data;
  if (place_ == to) results[static_cast<size_t>(from)] = to_data;
  on_host([&](Collectives& group) { group.all_to_all(results, parts); });
}

// To the first rank of each host, from there to the root's, and to the root.
void HierarchicalCollectives::gather(std::span<const Elements> results, Elements part,
                                     int64_t root) {
  run([&] {
    if (is_one_host()) {
      return on_host([&](Collectives& group) { group.gather(results, part, root); });
    }
    agree(announce("gather", part, root));
    const auto counts = equal_counts(std::ssize(by_hosts_), part.count);
    const auto of_hosts = counts_of_hosts(layout_, counts);
    const bool is_home = host_of(rank_) == host_of(root);
    Elements block = part, all = {nullptr, part.type, 0};
    if (is_first() && local_ != nullptr) {
      block = scratch(kBlock, part.type, of_hosts[static_cast<size_t>(host_of(rank_))]);
    }
    if (is_home && (is_first() || rank_ == root)) {
      all = scratch(kOrdered, part.type, sum_of(counts));
    }
    std::vector<Elements> brought;
    if (is_first()) brought = cut(block, counts_of(own_host(), counts));
    on_host([&](Collectives& group) { group.gather(brought, part, 0); });
    if (is_first()) {
      std::vector<Elements> sent(of_hosts.size(), Elements{nullptr, part.type, 0}), come = sent;
      sent[static_cast<size_t>(host_of(root))] = block;
      if (is_home) come = cut(all, of_hosts);
      over_hosts(kFirst, [&](Collectives& group) { group.all_to_all(come, sent); });
    }
    if (is_home) pass(all, 0, all, place_of(root));
    if (rank_ != root) return;
    const std::vector<Elements> parts = cut(all, counts);
    for (size_t i = 0; i < by_hosts_.size(); ++i) {
      copy_bytes(results[static_cast<size_t>(by_hosts_[i])].data, parts[i].data, part.bytes());
    }
  });
}

// The same way back.
void HierarchicalCollectives::scatter(Elements result, std::span<const Elements> parts,
                                      int64_t root) {
  run([&] {
    if (is_one_host()) {
      return on_host([&](Collectives& group) { group.scatter(result, parts, root); });
    }
    agree(announce("scatter", result, root));
    const auto counts = equal_counts(std::ssize(by_hosts_), result.count);
    const auto of_hosts = counts_of_hosts(layout_, counts);
    const bool is_home = host_of(rank_) == host_of(root);
    Elements block = result, all = {nullptr, result.type, 0};
    if (is_first() && local_ != nullptr) {
      block = scratch(kBlock, result.type, of_hosts[static_cast<size_t>(host_of(rank_))]);
    }
    if (is_home && (is_first() || rank_ == root)) {
      all = scratch(kOrdered, result.type, sum_of(counts));
    }
    if (rank_ == root) {
      const std::vector<Elements> places = cut(all, counts);
      for (size_t i = 0; i < by_hosts_.size(); ++i) {
        copy_bytes(places[i].data, parts[static_cast<size_t>(by_hosts_[i])].data, result.bytes());
      }
    }
    if (is_home) pass(all, place_of(root), all, 0);
    if (is_first()) {
      std::vector<Elements> sent(of_hosts.size(), Elements{nullptr, result.type, 0}), come = sent;
      come[static_cast<size_t>(host_of(root))] = block;
      if (is_home) sent = cut(all, of_hosts);
      over_hosts(kFirst, [&](Collectives& group) { group.all_to_all(come, sent); });
    }
    std::vector<Elements> dealt;
    if (is_first()) dealt = cut(block, counts_of(own_host(), counts));
    on_host([&](Collectives& group) { group.scatter(result, dealt, 0); });
  });
}

}  // namespace levin::comm
