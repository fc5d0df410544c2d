#include "levin/comm/hierarchical/collectives.h"

#include <ATen/ops/from_blob.h>

#include <numeric>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/text.h"

namespace levin::comm {
namespace {

// Up to here one message each way of the first ranks beats three collectives of parts.
constexpr int64_t kSmallBytes = 32 << 10;

// Numbers of the groups over hosts.
constexpr int64_t kFlat = 0;
constexpr int64_t kFirstRanks = 1;
constexpr int64_t kSamePlace = 2;
constexpr int64_t kRoots = 3;  // and the root's rank

std::string ranks_text(std::span<const int64_t> ranks) {
  std::vector<std::string> words;
  for (const int64_t rank : ranks) words.push_back(std::to_string(rank));
  return to_text(words);
}

/// A mean of means is the whole mean only where each was of as many.
void divide(Elements data, int64_t by) {
  at::from_blob(data.data, {data.count}, at::TensorOptions(data.type)).div_(by);
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(HostLayout layout, int64_t rank,
                                                 std::unique_ptr<Collectives> local, Across across)
    : layout_(std::move(layout)),
      rank_(rank),
      place_(layout_.place_of[static_cast<size_t>(rank)]),
      num_hosts_(std::ssize(layout_.hosts)),
      local_(std::move(local)),
      across_(std::move(across)),
      all_ranks_(layout_.host_of.size()) {
  std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
  if (num_hosts_ > 1) flat_ = across_(all_ranks_, kFlat);
}

std::span<const int64_t> HierarchicalCollectives::own_host() const {
  return layout_.hosts[static_cast<size_t>(layout_.host_of[static_cast<size_t>(rank_)])];
}

template <class Body>
void HierarchicalCollectives::run(const Body& body) {
  failure_.check();
  try {
    body();
  } catch (const std::exception& error) {
    failure_.note(error.what());
    throw;
  }
}

template <class Body>
void HierarchicalCollectives::on_host(const Body& body) {
  if (local_ == nullptr) return;
  try {
    body(*local_);
  } catch (const Error& error) {
    LEVIN_FAIL(error.id(), "{} (counted on this host, whose ranks are {})", error.text(),
               ranks_text(own_host()));
  }
}

template <class Body>
void HierarchicalCollectives::over_hosts(const std::vector<int64_t>& members, int64_t number,
                                         const Body& body) {
  if (num_hosts_ == 1) return;
  auto& group = groups_[number];
  if (group == nullptr) {
    group = across_(members, number);
    if (timeout_.count() > 0) group->set_timeout(timeout_);
  }
  try {
    body(*group);
  } catch (const Error& error) {
    LEVIN_FAIL(error.id(), "{} (counted over the hosts, of ranks {})", error.text(),
               ranks_text(members));
  }
}

void HierarchicalCollectives::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  if (local_ != nullptr) local_->set_timeout(timeout);
  if (flat_ != nullptr) flat_->set_timeout(timeout);
  for (auto& [number, group] : groups_) group->set_timeout(timeout);
}

void HierarchicalCollectives::barrier() {
  run([&] {
    on_host([](Collectives& group) { group.barrier(); });
    if (is_first()) {
      over_hosts(layout_.first_ranks_and(rank_), kFirstRanks,
                 [](Collectives& group) { group.barrier(); });
    }
    on_host([](Collectives& group) { group.barrier(); });
  });
}

void HierarchicalCollectives::all_reduce(Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    if (layout_.is_even() && data.bytes() > kSmallBytes) {
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
    over_hosts(layout_.first_ranks_and(rank_), kFirstRanks,
               [&](Collectives& group) { group.all_reduce(data, reduction); });
    if (divides) divide(data, std::ssize(all_ranks_));
  }
  on_host([&](Collectives& group) { group.broadcast(data, 0); });
}

void HierarchicalCollectives::all_reduce_by_places(Elements data, Reduction reduction) {
  const int64_t share = data.count / std::ssize(own_host());
  const Elements whole = data.part(0, share * std::ssize(own_host()));
  const Elements mine = data.part(place_ * share, share);
  on_host([&](Collectives& group) { group.reduce_scatter(mine, whole, reduction); });
  over_hosts(layout_.ranks_at(place_), kSamePlace,
             [&](Collectives& group) { group.all_reduce(mine, reduction); });
  on_host([&](Collectives& group) { group.all_gather(whole, mine); });
  const Elements rest = data.part(whole.count, data.count - whole.count);
  if (rest.count > 0) all_reduce_by_first(rest, reduction);
}

void HierarchicalCollectives::broadcast(Elements data, int64_t root) {
  run([&] {
    const auto members = layout_.first_ranks_and(root);
    const int64_t root_host = layout_.host_of[static_cast<size_t>(root)];
    const int64_t own = layout_.host_of[static_cast<size_t>(rank_)];
    const int64_t source = members[static_cast<size_t>(own)];
    if (rank_ == source) {
      over_hosts(members, kRoots + root,
                 [&](Collectives& group) { group.broadcast(data, root_host); });
    }
    on_host([&](Collectives& group) {
      group.broadcast(data, layout_.place_of[static_cast<size_t>(source)]);
    });
  });
}

void HierarchicalCollectives::all_gather(Elements result, Elements part) {
  std::vector<Elements> results;
  for (const int64_t rank : all_ranks_) {
    results.push_back(result.part(rank * part.count, part.count));
  }
  all_gather(results, part);
}

// Each host's ranks bring the parts of their places from all hosts, then share them.
void HierarchicalCollectives::all_gather(std::span<const Elements> results, Elements part) {
  if (!layout_.is_even()) {
    return run([&] { flat_->all_gather(results, part); });
  }
  const auto results_of = [&](std::span<const int64_t> ranks) {
    std::vector<Elements> some;
    for (const int64_t rank : ranks) some.push_back(results[static_cast<size_t>(rank)]);
    return some;
  };
  run([&] {
    const auto same_place = layout_.ranks_at(place_);
    std::vector<Elements> brought = results_of(same_place);
    if (num_hosts_ == 1) brought = {part};
    over_hosts(same_place, kSamePlace,
               [&](Collectives& group) { group.all_gather(brought, part); });
    for (int64_t host = 0; host < num_hosts_; ++host) {
      const auto i = static_cast<size_t>(host);
      on_host(
          [&](Collectives& group) { group.all_gather(results_of(layout_.hosts[i]), brought[i]); });
    }
  });
}

// A host's ranks sum what theirs have for each host's ranks, then those of one place sum over
// hosts.
void HierarchicalCollectives::reduce_scatter(Elements result, Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  if (!layout_.is_even()) {
    return run([&] { flat_->reduce_scatter(result, data, reduction); });
  }
  run([&] {
    const int64_t per_host = std::ssize(own_host()), count = result.count;
    const int64_t bytes = result.bytes();
    const bool in_order = layout_.is_in_order();
    scratch_.resize(static_cast<size_t>((num_hosts_ + (in_order ? 0 : per_host)) * bytes));
    const Elements partial = {scratch_.data(), data.type, num_hosts_ * count};
    for (int64_t host = 0; host < num_hosts_; ++host) {
      Elements theirs = data.part(host * per_host * count, per_host * count);
      if (!in_order) {
        theirs.data = scratch_.data() + num_hosts_ * bytes;
        for (int64_t place = 0; place < per_host; ++place) {
          const int64_t rank = layout_.hosts[static_cast<size_t>(host)][static_cast<size_t>(place)];
          copy_bytes(theirs.data + place * bytes, data.part(rank * count, count).data, bytes);
        }
      }
      const Elements sum = partial.part(host * count, count);
      if (local_ == nullptr) copy_bytes(sum.data, theirs.data, bytes);
      on_host([&](Collectives& group) { group.reduce_scatter(sum, theirs, reduction); });
    }
    if (num_hosts_ == 1) copy_bytes(result.data, partial.data, bytes);
    over_hosts(layout_.ranks_at(place_), kSamePlace,
               [&](Collectives& group) { group.reduce_scatter(result, partial, reduction); });
  });
}

// The others meet where each pair of ranks has its own bytes, or where one rank is the network's
// limit: nothing is saved on a host.
void HierarchicalCollectives::reduce(Elements data, int64_t root, Reduction reduction) {
  run([&] { (flat_ ? *flat_ : *local_).reduce(data, root, reduction); });
}

void HierarchicalCollectives::gather(std::span<const Elements> results, Elements part,
                                     int64_t root) {
  run([&] { (flat_ ? *flat_ : *local_).gather(results, part, root); });
}

void HierarchicalCollectives::scatter(Elements result, std::span<const Elements> parts,
                                      int64_t root) {
  run([&] { (flat_ ? *flat_ : *local_).scatter(result, parts, root); });
}

void HierarchicalCollectives::all_to_all(std::span<const Elements> results,
                                         std::span<const Elements> parts) {
  run([&] { (flat_ ? *flat_ : *local_).all_to_all(results, parts); });
}

void HierarchicalCollectives::send(Elements data, int64_t to, int64_t tag) {
  const auto i = static_cast<size_t>(to);
  const bool is_near = layout_.host_of[i] == layout_.host_of[static_cast<size_t>(rank_)];
  run([&] {
    if (is_near) return local_->send(data, layout_.place_of[i], tag);
    flat_->send(data, to, tag);
  });
}

void HierarchicalCollectives::receive(Elements data, int64_t from, int64_t tag) {
  const auto i = static_cast<size_t>(from);
  const bool is_near = layout_.host_of[i] == layout_.host_of[static_cast<size_t>(rank_)];
  run([&] {
    if (is_near) return local_->receive(data, layout_.place_of[i], tag);
    flat_->receive(data, from, tag);
  });
}

}  // namespace levin::comm
