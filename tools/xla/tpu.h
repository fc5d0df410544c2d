#pragma once
// tpu: the kinds of TPUs, for what is reckoned and compiled for TPUs that are not there.
//
//   const TpuSlice slice = tpu_slice("v5e:2x4");
//   slice.num_cores * slice.tpu->flops_per_s

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "levin/graph/cost/tpu_generations.h"
#include "levin/graph/passes/passes.h"

namespace levin::tools {

using Tpu = TpuGeneration;

/// By the beginning of a topology's name.
const Tpu* find_tpu(std::string_view topology);

struct TpuSlice {
  const Tpu* tpu = nullptr;
  std::string topology;
  int64_t num_cores = 1;
};

/// Of "v5e:2x4", or of "v5e", which is one chip. Throws Error "tools.tpu", with the generations there are.
TpuSlice tpu_slice(const std::string& topology);

/// For cost_of; float32 takes twice as long as bfloat16.
graph::DeviceDescription description_of(const TpuSlice& slice);

}  // namespace levin::tools
