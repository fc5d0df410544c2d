#include "levin/comm/hierarchical/layout.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

namespace levin::comm {

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network = {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}", boot, network.st_ino);
}

HostLayout HostLayout::of(const std::vector<std::string>& identities) {
  HostLayout layout;
  std::vector<std::string> known;
  for (int64_t rank = 0; rank < std::ssize(identities); ++rank) {
    const std::string& identity = identities[static_cast<size_t>(rank)];
    const auto host = static_cast<size_t>(std::ranges::find(known, identity) - known.begin());
    if (host == known.size()) {
      known.push_back(identity);
      layout.hosts.emplace_back();
    }
    layout.host_of.push_back(static_cast<int64_t>(host));
    layout.place_of.push_back(std::ssize(layout.hosts[host]));
    layout.hosts[host].push_back(rank);
  }
  return layout;
}

bool HostLayout::is_even() const {
  return std::ranges::all_of(hosts, [&](const auto& h) { return h.size() == hosts[0].size(); });
}

std::vector<int64_t> HostLayout::ranks_at(int64_t place) const {
  std::vector<int64_t> members;
  for (const auto& host : hosts) members.push_back(host[static_cast<size_t>(place)]);
  return members;
}

}  // namespace levin::comm
