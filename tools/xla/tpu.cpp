#include "tools/xla/tpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::tools {
namespace {

/// "2x4" is 8; none where it is no such product.
std::optional<int64_t> num_chips(std::string_view shape) {
  int64_t product = 1;
  for (const char *at = shape.data(), *const end = at + shape.size();; ++at) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > 1024) return std::nullopt;
    product *= size;
    if (next == end) return product;
    if (*next != 'x') return std::nullopt;
    at = next;
  }
}

}  // namespace

const Tpu* find_tpu(std::string_view topology) {
  const auto* const found =
      std::ranges::find(kTpuGenerations, topology.substr(0, topology.find(':')), &Tpu::name);
  return found == kTpuGenerations.end() ? nullptr : found;
}

TpuSlice tpu_slice(const std::string& topology) {
  const Tpu* const tpu = find_tpu(topology);
  std::vector<std::string> kinds;
  for (const Tpu& known : kTpuGenerations) kinds.emplace_back(known.name);
  if (tpu == nullptr) {
    const auto guess = nearest(topology.substr(0, topology.find(':')), kinds);
    LEVIN_FAIL("tools.tpu", "got '{}', wanted one of {}, with its chips as in v5e:2x4{}", topology,
               fmt::join(kinds, ", "), guess ? fmt::format("; did you mean '{}'?", *guess) : "");
  }
  const size_t colon = topology.find(':');
  const std::string shape = colon == std::string::npos ? "1" : topology.substr(colon + 1);
  const auto chips = num_chips(shape);
  LEVIN_CHECK(chips, "tools.tpu", "got '{}', wanted the chips after the colon as in {}:2x4",
              topology, tpu->name);
  return {.tpu = tpu, .topology = topology, .num_cores = *chips * tpu->cores_of_chip};
}

graph::DeviceDescription description_of(const TpuSlice& slice) {
  return {.name = slice.topology,
          .flops_per_s = slice.tpu->flops_per_s / 2,
          .half_flops_per_s = slice.tpu->flops_per_s,
          .bytes_per_s = slice.tpu->bytes_per_s,
          .memory_bytes = slice.tpu->hbm_bytes,
          .operator_s = 0.0};
}

}  // namespace levin::tools
