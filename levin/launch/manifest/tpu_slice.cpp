#include "levin/launch/manifest/tpu_slice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "levin/base/check.h"

namespace levin::launch {
namespace {

struct Generation {
  std::string_view name;  ///< libtpu's
  std::string_view accelerator;
  std::string_view machine;  ///< before the number of its chips
  bool flat;                 ///< chips along two axes rather than three
};

// "Plan TPUs in GKE", the tables of TPU versions, machine types and topologies.
constexpr std::array kGenerations = {
    Generation{"v4", "tpu-v4-podslice", "ct4p-hightpu-", false},
    Generation{"v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu-", true},
    Generation{"v5p", "tpu-v5p-slice", "ct5p-hightpu-", false},
    Generation{"v6e", "tpu-v6e-slice", "ct6e-standard-", true},
    Generation{"tpu7x", "tpu7x", "tpu7x-standard-", false},
};
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
int64_t chips_per_host(const Generation& generation, int64_t num_chips) {
  return generation.flat && num_chips <= 8 ? num_chips : 4;
}

}  // namespace

TpuSlice parse_tpu_slice(std::string_view text) {
  const size_t colon = text.find(':');
  const auto* generation =
      std::ranges::find(kGenerations, text.substr(0, colon), &Generation::name);
  LEVIN_CHECK(colon != std::string_view::npos && generation != kGenerations.end(), "launch.tpu",
              "got '{}', wanted a generation of TPUs (v4, v5e, v5p, v6e, tpu7x) and a topology: "
              "v5e:4x4",
              text);
  const std::string_view topology = text.substr(colon + 1);
  LEVIN_CHECK(generation->flat ? has(kFlat, topology) : is_cube(topology), "launch.tpu",
              "a slice of {} has no topology '{}'; there are {}", generation->name, topology,
              generation->flat ? fmt::format("{}", fmt::join(kFlat, ", "))
                               : fmt::format("{}, and AxBxC of multiples of 4 with A <= B <= C",
                                             fmt::join(kSmallCubes, ", ")));
  int64_t num_chips = 1;
  for (const int64_t axis : axes_of(topology)) num_chips *= axis;
  const int64_t chips = chips_per_host(*generation, num_chips);
  return {.accelerator = std::string(generation->accelerator),
          .topology = std::string(topology),
          .machine = fmt::format("{}{}t", generation->machine, chips),
          .num_hosts = num_chips / chips,
          .chips_per_host = chips};
}

}  // namespace levin::launch
