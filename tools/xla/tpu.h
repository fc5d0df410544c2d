#pragma once
// tpu: the kinds of TPUs, for what is reckoned and compiled for TPUs that are not there.
//
//   const TpuSlice slice = tpu_slice("v5e:2x4");
//   slice.num_cores * slice.tpu->flops_per_s

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "levin/graph/cost/cost.h"

namespace levin::tools {

/// What a core has, which is what XLA takes for a device: half a chip of a v2, v3, v4 and tpu7x, a
/// chip of the others.
struct Tpu {
  std::string_view kind;  ///< as topologies begin, "v5e"
  int64_t cores_of_chip = 1;
  double flops_per_s = 0.0;  ///< bfloat16
  double bytes_per_s = 0.0;  ///< of its HBM
  double hbm_bytes = 0.0;    ///< that the compiler gives to programs; the rest is the system's
};

/// Rates by Google's pages of the kinds (cloud.google.com/tpu/docs/v5e and so on); memory as libtpu
/// 0.0.42 names it where it refuses a program.
std::span<const Tpu> known_tpus();
/// By the beginning of a topology's name.
const Tpu* find_tpu(std::string_view topology);

struct TpuSlice {
  const Tpu* tpu = nullptr;
  std::string topology;
  int64_t num_cores = 1;
};

/// Of "v5e:2x4", or of "v5e", which is one chip. Throws Error "tools.tpu", with known_tpus().
TpuSlice tpu_slice(const std::string& topology);

/// For cost_of; float32 takes twice as long as bfloat16.
graph::DeviceDescription description_of(const TpuSlice& slice);

}  // namespace levin::tools
