// HierarchicalCollectives: what sums over all ranks.

#include <ATen/ops/from_blob.h>

#include "levin/comm/hierarchical/collectives.h"
#include "levin/comm/hierarchical/order.h"

namespace levin::comm {
namespace {

// Up to here one message each way of the first ranks beats three collectives of parts.
constexpr int64_t kSmallOverHosts = 32 << 10;

/// A mean of means is the whole mean only where each was of as many.
void divide(Elements data, int64_t by) {
  at::from_blob(data.data, {data.count}, at::TensorOptions(data.type)).div_(by);
}

}  // namespace

void HierarchicalCollectives::all_reduce(Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    if (is_one_host()) {
      on_host([&](Collectives& group) { group.all_reduce(data, reduction); });
    } else if (layout_.is_even() && data.bytes() > kSmallOverHosts) {
      all_reduce_by_places(data, reduction);
    } else {
      all_reduce_by_first(data, reduction);
    }
  });
}

void HierarchicalCollectives::all_reduce_by_first(Elements data, Reduction reduction) {
  const bool divides = reduction == Reduction::kMean;
  if (divides) reduction = Reduction::kSum;
  on_host([&](Collectives& group) { group.reduce(data, 0, reduction); });
  if (is_first()) {
    over_hosts(kFirst, [&](Collectives& group) { group.all_reduce(data, reduction); });
    if (divides) divide(data, std::ssize(by_hosts_));
  }
  on_host([&](Collectives& group) { group.broadcast(data, 0); });
}

void HierarchicalCollectives::all_reduce_by_places(Elements data, Reduction reduction) {
  prepare(kSamePlace, announce("all_reduce", data, argument_of(reduction)));
  const int64_t per_host = std::ssize(own_host()), share = data.count / per_host;
  const auto counts = equal_counts(per_host, share);
  const Elements whole = data.part(0, share * per_host);
  const Elements mine = data.part(place_ * share, share);
  on_host([&](Collectives& group) { group.reduce_scatter(mine, whole, counts, reduction); });
  over_hosts(kSamePlace, [&](Collectives& group) { group.all_reduce(mine, reduction); });
  on_host([&](Collectives& group) { group.all_gather(whole, mine, counts); });
  const Elements rest = data.part(whole.count, data.count - whole.count);
  if (rest.count > 0) all_reduce_by_first(rest, reduction);
}

void HierarchicalCollectives::reduce(Elements data, int64_t root, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    if (is_one_host()) {
      return on_host([&](Collectives& group) { group.reduce(data, root, reduction); });
    }
    agree(announce("reduce", data, argument_of(reduction, root)));
    const bool divides = reduction == Reduction::kMean;
    const Reduction by = divides ? Reduction::kSum : reduction;
    Elements sum = data;  // the first ranks' own data stay unchanged
    if (is_first() && rank_ != root) {
      sum = scratch(kSummed, data.type, data.count);
      copy_bytes(sum.data, data.data, data.bytes());
    }
    on_host([&](Collectives& group) { group.reduce(sum, 0, by); });
    if (is_first()) {
      over_hosts(kFirst, [&](Collectives& group) { group.reduce(sum, host_of(root), by); });
    }
    if (host_of(rank_) == host_of(root)) pass(sum, 0, data, place_of(root));
    if (divides && rank_ == root) divide(data, std::ssize(by_hosts_));
  });
}

void HierarchicalCollectives::reduce_scatter(Elements result, Elements data, Counts counts,
                                             Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    if (is_one_host()) {
      return on_host(
          [&](Collectives& group) { group.reduce_scatter(result, data, counts, reduction); });
    }
    const auto what = announce_parts("reduce_scatter", data, counts, argument_of(reduction));
    if (!are_equal(counts)) agree(what);
    if (!layout_.is_even()) return reduce_scatter_by_first(result, data, counts, reduction);
    prepare(kSamePlace, what);
    reduce_scatter_by_places(result, data, counts, reduction);
  });
}

// A host's ranks sum their data for each host's ranks. Then the ranks of one place sum over hosts.
void HierarchicalCollectives::reduce_scatter_by_places(Elements result, Elements data,
                                                       Counts counts, Reduction reduction) {
  const auto at_place = counts_of(layout_.ranks_at(place_), counts);
  const Elements ordered = in_order_of(
      by_hosts_, data, counts, [&](int64_t count) { return scratch(kOrdered, data.type, count); });
  const Elements partial = scratch(kPlace, data.type, sum_of(at_place));
  const std::vector<Elements> sums = cut(partial, at_place);
  int64_t begin = 0;
  for (int64_t host = 0; host < num_hosts_; ++host) {
    const auto of_host = counts_of(ranks_of(host), counts);
    const Elements theirs = ordered.part(begin, sum_of(of_host));
    const Elements sum = sums[static_cast<size_t>(host)];
    if (local_ == nullptr) copy_bytes(sum.data, theirs.data, sum.bytes());
    on_host([&](Collectives& group) { group.reduce_scatter(sum, theirs, of_host, reduction); });
    begin += theirs.count;
  }
  over_hosts(kSamePlace, [&](Collectives& group) {
    group.reduce_scatter(result, partial, at_place, reduction);
  });
}

// The first ranks sum for their hosts.
void HierarchicalCollectives::reduce_scatter_by_first(Elements result, Elements data, Counts counts,
                                                      Reduction reduction) {
  const bool divides = reduction == Reduction::kMean;
  if (divides) reduction = Reduction::kSum;
  const auto mine = counts_of(own_host(), counts);
  const Elements block = scratch(kBlock, data.type, sum_of(mine));
  Elements sum = data;
  if (is_first()) {
    sum = scratch(kSummed, data.type, data.count);
    copy_bytes(sum.data, data.data, data.bytes());
  }
  on_host([&](Collectives& group) { group.reduce(sum, 0, reduction); });
  if (is_first()) {
    const Elements ordered = in_order_of(
        by_hosts_, sum, counts, [&](int64_t count) { return scratch(kOrdered, data.type, count); });
    const auto of_hosts = counts_of_hosts(layout_, counts);
    over_hosts(kFirst, [&](Collectives& group) {
      group.reduce_scatter(block, ordered, of_hosts, reduction);
    });
  }
  on_host([&](Collectives& group) { group.broadcast(block, 0); });
  copy_bytes(result.data, block.part(begin_of(place_, mine), result.count).data, result.bytes());
  if (divides) divide(result, std::ssize(by_hosts_));
}

}  // namespace levin::comm
