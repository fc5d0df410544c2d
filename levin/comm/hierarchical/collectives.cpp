#include "levin/comm/hierarchical/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::comm {
namespace {

std::string ranks_text(std::span<const int64_t> ranks) {
  return to_text(std::vector<int64_t>(ranks.begin(), ranks.end()));
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(HostLayout layout, int64_t rank,
                                                 std::unique_ptr<Collectives> local, Across across,
                                                 std::chrono::milliseconds timeout)
    : layout_(std::move(layout)),
      rank_(rank),
      place_(layout_.place_of[static_cast<size_t>(rank)]),
      num_hosts_(std::ssize(layout_.hosts)),
      local_(std::move(local)),
      across_(std::move(across)),
      timeout_(timeout) {
  for (const auto& host : layout_.hosts)
    by_hosts_.insert(by_hosts_.end(), host.begin(), host.end());
  if (is_one_host()) return;
  if (is_first()) connect(kFirst);
  if (!across_.connects_pairs) connect(kAll);
}

std::vector<int64_t> HierarchicalCollectives::members_of(Group which) const {
  if (which == kFirst) return layout_.ranks_at(0);
  if (which == kSamePlace) return layout_.ranks_at(place_);
  std::vector<int64_t> all(layout_.host_of.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// First ranks are of one place too.
void HierarchicalCollectives::connect(Group which) {
  auto& group = groups_[which];
  if (group != nullptr) return;
  if (which == kSamePlace && is_first()) {
    group = groups_[kFirst];
    return;
  }
  const std::string name = which == kFirst       ? "first"
                           : which == kSamePlace ? fmt::format("place{}", place_)
                                                 : "all";
  group = across_.connect(
      {.members = members_of(which), .name = name, .look = [this] { failure_.check(); }}, timeout_);
}

void HierarchicalCollectives::run(const std::function<void()>& body) {
  failure_.check();
  try {
    body();
  } catch (const std::exception& error) {
    failure_.note(error.what());
    throw;
  }
}

void HierarchicalCollectives::on_host(const Body& body) {
  if (local_ == nullptr) return;
  try {
    body(*local_);
  } catch (const Error& error) {
    LEVIN_FAIL(error.id(), "{} (rank numbers are local to this host, whose ranks are {})",
               error.text(), ranks_text(own_host()));
  }
}

void HierarchicalCollectives::over_hosts(Group which, const Body& body) {
  connect(which);
  try {
    body(*groups_[which]);
  } catch (const Error& error) {
    if (which == kAll) throw;
    LEVIN_FAIL(error.id(), "{} (rank numbers are positions in the list of ranks {}, one per host)",
               error.text(), ranks_text(members_of(which)));
  }
}

void HierarchicalCollectives::prepare(Group which, const Announcement& what) {
  if (!across_.connects_pairs || std::exchange(prepared_[which], true)) return;
  agree(what);
}

void HierarchicalCollectives::agree(const Announcement& what) {
  on_host([&](Collectives& group) { group.meet(what); });
  if (is_first()) over_hosts(kFirst, [&](Collectives& group) { group.meet(what); });
  on_host([&](Collectives& group) { group.meet(what); });
}

void HierarchicalCollectives::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  if (local_ != nullptr) local_->set_timeout(timeout);
  for (const auto& group : groups_) {
    if (group != nullptr) group->set_timeout(timeout);
  }
  const std::lock_guard lock(mutex_);
  for (auto& [peer, pair] : pairs_) {
    if (pair.group != nullptr) pair.group->set_timeout(timeout);
  }
}

void HierarchicalCollectives::meet(const Announcement& what) {
  run([&] {
    if (is_one_host()) return on_host([&](Collectives& group) { group.meet(what); });
    agree(what);
  });
}

// One that is not the first of its host gives it to that one: the first ranks have connections.
void HierarchicalCollectives::broadcast(Elements data, int64_t root) {
  run([&] {
    const int64_t root_host = host_of(root), root_place = place_of(root);
    const bool is_home = host_of(rank_) == root_host;
    const bool goes_by_first = is_home && root_place != 0 && !is_one_host();
    if (is_home && (goes_by_first || is_one_host())) {
      on_host([&](Collectives& group) { group.broadcast(data, root_place); });
    }
    if (is_one_host()) return;
    if (is_first()) {
      over_hosts(kFirst, [&](Collectives& group) { group.broadcast(data, root_host); });
    }
    // Ranks that have it hear here of what went wrong further on.
    on_host(
        [&](Collectives& group) { goes_by_first ? group.barrier() : group.broadcast(data, 0); });
  });
}

// Each pair of ranks has its own bytes: nothing is saved on a host.
void HierarchicalCollectives::all_to_all(std::span<const Elements> results,
                                         std::span<const Elements> parts) {
  run([&] {
    const auto body = [&](Collectives& group) { group.all_to_all(results, parts); };
    if (is_one_host()) return on_host(body);
    prepare(kAll, announce("all_to_all", {nullptr, parts[0].type, 0}));
    over_hosts(kAll, body);
  });
}

Collectives& HierarchicalCollectives::pair_with(int64_t peer) {
  Pair* pair = nullptr;
  {
    const std::lock_guard lock(mutex_);
    pair = &pairs_[peer];
  }
  const std::lock_guard connecting(pair->connecting);
  if (pair->group == nullptr) {
    const auto [low, high] = std::minmax(rank_, peer);
    auto group = across_.connect({.members = {low, high},
                                  .name = fmt::format("pair{}-{}", low, high),
                                  .look = [this] { failure_.check(); }},
                                 timeout_);
    const std::lock_guard lock(mutex_);
    pair->group = std::move(group);
  }
  return *pair->group;
}

void HierarchicalCollectives::with(int64_t peer,
                                   const std::function<void(Collectives&, int64_t number)>& body) {
  if (host_of(peer) == host_of(rank_)) return body(*local_, place_of(peer));
  if (!across_.connects_pairs) return body(*groups_[kAll], peer);
  try {
    body(pair_with(peer), peer < rank_ ? 0 : 1);
  } catch (const Error& error) {
    LEVIN_FAIL(error.id(), "{} (rank numbers are positions in the pair of ranks {} and {})",
               error.text(), std::min(rank_, peer), std::max(rank_, peer));
  }
}

void HierarchicalCollectives::send(Elements data, int64_t to, int64_t tag) {
  run([&] {
    with(to, [&](Collectives& group, int64_t number) { group.send(data, number, tag); });
  });
}

void HierarchicalCollectives::receive(Elements data, int64_t from, int64_t tag) {
  run([&] {
    with(from, [&](Collectives& group, int64_t number) { group.receive(data, number, tag); });
  });
}

Elements HierarchicalCollectives::scratch(Purpose purpose, at::ScalarType type, int64_t count) {
  auto& memory = scratch_[purpose];
  const Elements wanted = {nullptr, type, count};
  if (memory.size() < static_cast<size_t>(wanted.bytes())) {
    memory.resize(static_cast<size_t>(wanted.bytes()));
  }
  return {memory.data(), type, count};
}

}  // namespace levin::comm
