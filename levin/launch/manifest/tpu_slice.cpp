#include "levin/launch/manifest/tpu_slice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "levin/base/check.h"
#include "levin/graph/cost/tpu_generations.h"

namespace levin::launch {
namespace {

// "Plan TPUs in GKE", the table of topologies.
constexpr std::array<std::string_view, 8> kFlat = {"1x1", "2x2", "2x4",  "4x4",
                                                   "4x8", "8x8", "8x16", "16x16"};
// Further ones have multiples of 4 along each axis, none shorter than the one before it.
constexpr std::array<std::string_view, 4> kSmallCubes = {"2x2x1", "2x2x2", "2x2x4", "2x4x4"};

using Axes = std::vector<int64_t>;

/// Nothing when it is no numbers with an x between them.
Axes axes_of(std::string_view text) {
  Axes axes;
  for (const char* next = text.data(); next != text.data() + text.size();) {
    int64_t axis = 0;
    const auto [end, error] = std::from_chars(next, text.data() + text.size(), axis);
    if (error != std::errc{} || axis < 1 || axis > 1024) return {};
    axes.push_back(axis);
    const bool last = end == text.data() + text.size();
    if (!last && (*end != 'x' || end + 1 == text.data() + text.size())) return {};
    next = last ? end : end + 1;
  }
  return axes;
}

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_cube(std::string_view topology) {
  if (has(kSmallCubes, topology)) return true;
  const Axes axes = axes_of(topology);
  return axes.size() == 3 && std::ranges::is_sorted(axes) &&
         std::ranges::all_of(axes, [](int64_t axis) { return axis % 4 == 0; });
}

// A v5e or v6e of up to 8 chips can be one machine; all others have 4 each.
int64_t chips_per_host(const TpuGeneration& generation, int64_t num_chips) {
  return generation.is_flat && num_chips <= 8 ? num_chips : 4;
}

}  // namespace

TpuSlice parse_tpu_slice(std::string_view text) {
  const size_t colon = text.find(':');
  const auto* generation =
      std::ranges::find(kTpuGenerations, text.substr(0, colon), &TpuGeneration::name);
  const bool is_there = generation != kTpuGenerations.end() && !generation->gke_accelerator.empty();
  LEVIN_CHECK(colon != std::string_view::npos && is_there, "launch.tpu",
              "got '{}', wanted a generation of TPUs (v4, v5e, v5p, v6e, tpu7x) and a topology: "
              "v5e:4x4",
              text);
  const std::string_view topology = text.substr(colon + 1);
  LEVIN_CHECK(generation->is_flat ? has(kFlat, topology) : is_cube(topology), "launch.tpu",
              "TPU generation {} has no topology '{}', wanted one of {}", generation->name,
              topology,
              generation->is_flat ? fmt::format("{}", fmt::join(kFlat, ", "))
                                  : fmt::format("{}, and AxBxC of multiples of 4 with A <= B <= C",
                                                fmt::join(kSmallCubes, ", ")));
  int64_t num_chips = 1;
  for (const int64_t axis : axes_of(topology)) num_chips *= axis;
  const int64_t chips = chips_per_host(*generation, num_chips);
  return {.accelerator = std::string(generation->gke_accelerator),
          .topology = std::string(topology),
          .machine = fmt::format("{}{}t", generation->gke_machine, chips),
          .num_hosts = num_chips / chips,
          .chips_per_host = chips};
}

}  // namespace levin::launch
