#pragma once
// TpuSlice: which hosts of Google Kubernetes Engine a slice of TPUs is made of.
//
//   parse_tpu_slice("v5e:4x4")  // 4 hosts of 4 chips, machines of type ct5lp-hightpu-4t

#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::launch {

struct TpuSlice {
  std::string accelerator;  ///< value of the nodes' label cloud.google.com/gke-tpu-accelerator
  std::string topology;     ///< ... and cloud.google.com/gke-tpu-topology: "4x4"
  std::string machine;      ///< type of the node pool's machines
  int64_t num_hosts = 1;
  int64_t chips_per_host = 1;
};

/// Parses a slice named like libtpu's topologies: v4, v5e, v5p, v6e or tpu7x, then the chips along
/// each axis, "v5e:2x4", "v5p:2x2x2". Takes the largest of the machines that can make up the slice.
/// Throws Error "launch.tpu", naming the slices there are, for one that GKE does not have.
LEVIN_API TpuSlice parse_tpu_slice(std::string_view text);

}  // namespace levin::launch
