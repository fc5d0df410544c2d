#pragma once
// The generations of TPUs: what their chips can do, and what Google Kubernetes Engine calls them.
// Read by the cost model, by manifests, and by what is reckoned for TPUs that are not there.

#include <array>
#include <cstdint>
#include <string_view>

namespace levin {

/// Rates and memory are those of a core, which is what XLA takes for a device: half a chip of a v2,
/// v3, v4 and tpu7x, a chip of the others. Rates by Google's pages of the generations
/// (cloud.google.com/tpu/docs/v5e and so on), memory as libtpu 0.0.42 names it where it refuses a
/// program. Names of GKE by "Plan TPUs in GKE", the tables of TPU versions and machine types.
struct TpuGeneration {
  std::string_view name;  ///< as libtpu's topologies begin, "v5e"
  int64_t cores_of_chip = 1;
  double flops_per_s = 0.0;  ///< bfloat16
  double bytes_per_s = 0.0;  ///< bandwidth of its HBM
  double hbm_bytes = 0.0;    ///< HBM that the compiler gives to programs; the rest is the system's
  std::string_view gke_accelerator = {};  ///< empty where GKE has none
  std::string_view gke_machine = {};      ///< before the number of its chips
  bool is_flat = false;                   ///< chips along two axes rather than three
};

inline constexpr std::array kTpuGenerations = {
    TpuGeneration{"v2", 2, 23e12, 350e9, 7.48 * (1 << 30)},
    TpuGeneration{"v3", 2, 61.5e12, 450e9, 15.48 * (1 << 30)},
    TpuGeneration{"v4", 2, 137.5e12, 614e9, 15.25 * (1 << 30), "tpu-v4-podslice", "ct4p-hightpu-"},
    TpuGeneration{"v5e", 1, 197e12, 819e9, 15.75 * (1 << 30), "tpu-v5-lite-podslice",
                  "ct5lp-hightpu-", true},
    TpuGeneration{"v5p", 1, 459e12, 2765e9, 95.74 * (1 << 30), "tpu-v5p-slice", "ct5p-hightpu-"},
    TpuGeneration{"v6e", 1, 918e12, 1640e9, 31.25 * (1 << 30), "tpu-v6e-slice", "ct6e-standard-",
                  true},
    TpuGeneration{"tpu7x", 2, 1153.5e12, 3690e9, 94.75 * (1 << 30), "tpu7x", "tpu7x-standard-"}};

}  // namespace levin
