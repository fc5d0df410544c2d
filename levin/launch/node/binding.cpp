#include "levin/launch/node/binding.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/folder.h"

namespace levin::launch {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

constexpr std::array<std::string_view, 5> kBindings = {"none", "node", "socket", "core-complex",
                                                       "exclusive"};

Cpus allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  Cpus cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string first_line_of(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

// CPUs with the same text in that file form a group; those without the file form one together.
std::vector<Cpus> grouped_by(const fs::path& system, const char* file) {
  std::map<int, Cpus> by_first;
  std::map<std::string, int> first_of;
  for (const int cpu : allowed_cpus()) {
    const auto text = first_line_of(system / "cpu" / fmt::format("cpu{}", cpu) / file);
    by_first[first_of.try_emplace(text, cpu).first->second].push_back(cpu);
  }
  std::vector<Cpus> groups;
  for (auto& [first, cpus] : by_first) groups.push_back(std::move(cpus));
  return groups;
}

std::vector<Cpus> numa_nodes(const fs::path& system) {
  const Cpus allowed = allowed_cpus();
  std::map<int, Cpus> nodes;
  for (const fs::path& entry : files::entries_of(system / "node")) {
    std::error_code none;
    if (!fs::exists(entry / "cpulist", none)) continue;
    Cpus cpus = parse_cpu_list(first_line_of(entry / "cpulist"));
    std::erase_if(cpus, [&](int cpu) { return !std::ranges::binary_search(allowed, cpu); });
    if (!cpus.empty()) nodes.emplace(cpus.front(), cpus);
  }
  std::vector<Cpus> groups;
  for (auto& [first, cpus] : nodes) groups.push_back(std::move(cpus));
  return groups.empty() ? std::vector<Cpus>{allowed} : groups;
}

std::vector<Cpus> groups_of(std::string_view binding, const fs::path& system) {
  if (binding == "socket") return grouped_by(system, "topology/physical_package_id");
  if (binding == "core-complex") return grouped_by(system, "cache/index3/shared_cpu_list");
  return numa_nodes(system);
}

// The share of part i of n, in whole CPUs.
Cpus share(const Cpus& cpus, size_t i, size_t n) {
  const auto at = [&](size_t part) {
    return cpus.begin() + static_cast<std::ptrdiff_t>(cpus.size() * part / n);
  };
  return {at(i), at(i + 1)};
}

}  // namespace

void check_binding(std::string_view binding) {
  LEVIN_CHECK(std::ranges::find(kBindings, binding) != kBindings.end(), "launch.options",
              "--numa-binding: got '{}', wanted none, node, socket, core-complex or exclusive",
              binding);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  Cpus cpus;
  std::vector<std::string> ranges;
  from_text(text, ranges);
  try {
    for (const std::string& range : ranges) {
      const size_t dash = range.find('-');
      int64_t first = 0, last = 0;
      from_text(std::string_view(range).substr(0, dash), first);
      from_text(std::string_view(range).substr(dash == std::string::npos ? 0 : dash + 1), last);
      for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
  } catch (const Error&) {
    LEVIN_FAIL("launch.binding", "'{}' is not a list of CPUs; wanted a form like 0-3,8", text);
  }
  return cpus;
}

std::vector<int> cpus_for(std::string_view binding, int64_t local_rank, int64_t local_world_size,
                          const fs::path& system) {
  if (binding == "none") return {};
  const auto groups = groups_of(binding, system);
  const auto rank = static_cast<size_t>(local_rank);
  const auto num_ranks = static_cast<size_t>(local_world_size);
  const size_t group = rank * groups.size() / num_ranks;
  if (binding != "exclusive") return groups[group];
  // The ranks of this group are those r with r * groups / ranks == group.
  const size_t first = (group * num_ranks + groups.size() - 1) / groups.size();
  const size_t next = ((group + 1) * num_ranks + groups.size() - 1) / groups.size();
  Cpus own = share(groups[group], rank - first, next - first);
  LEVIN_CHECK(!own.empty(), "launch.binding",
              "{} CPUs cannot be divided among {} ranks; start fewer ranks or use "
              "--numa-binding node",
              groups[group].size(), next - first);
  return own;
}

}  // namespace levin::launch
