#pragma once
// Cluster: the rates of a cluster's devices and links, from which a forecast reckons times. A TOML
// file holds them: `levin env --measure` writes one, and data sheets give the presets.
//
//   const Cluster cluster = read_cluster("h100");          // a preset, or the path of a file
//   std::puts(to_toml(cluster).c_str());
// Not for users.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin::forecast {

/// Collectives of a group of ranks. An operation over n ranks takes
/// alpha * log2(n) + share * bytes / bandwidth, with the share of NCCL's tests: 2 (n - 1) / n for
/// all_reduce, (n - 1) / n for all_gather and reduce_scatter (bus bandwidth).
struct Link {
  std::string backend = "shm";          ///< shm, gloo, mpi or nccl
  double alpha_s = 0.0;                 ///< seconds to start a collective
  double all_reduce_bytes_per_s = 0.0;  ///< bus bandwidth, bytes a second
  double all_gather_bytes_per_s = 0.0;
  double reduce_scatter_bytes_per_s = 0.0;

  LEVIN_API void fields(FieldVisitor& field);
};

struct Cluster {
  std::string name = "measured";
  std::string source = {};     ///< where the numbers are from
  std::string device = "cpu";  ///< cpu or gpu
  double memory_bytes = 0.0;   ///< of a device; on CPUs, of a node
  double float32_flops_per_s = 0.0;
  double bfloat16_flops_per_s = 0.0;
  double float16_flops_per_s = 0.0;
  double bytes_per_s = 0.0;  ///< memory bandwidth of a rank
  double operator_s = 0.0;   ///< seconds to start an operator
  /// Part of the rates above that the operators of a step reach.
  double efficiency = 1.0;
  int64_t ranks_per_node = 1;
  /// Part of the time of a hidden collective by which it slows compute: 1 where both share the
  /// cores, 0 where the network moves data by itself.
  double overlap_cost = 0.0;
  double runtime_bytes = 0.0;  ///< memory of a process without a model
  double disk_read_bytes_per_s = 0.0;
  double disk_write_bytes_per_s = 0.0;
  Link inside = {};  ///< between ranks of a node
  Link across = {};  ///< between nodes

  bool is_cpu() const { return device == "cpu"; }
  /// Returns whether ranks of a node keep one copy of what they share.
  bool shares_memory() const { return is_cpu() && inside.backend == "shm"; }
  LEVIN_API void fields(FieldVisitor& field);
};

/// The presets: "cpu", and nodes of "a100", "h100" and "h200", by their makers' data sheets.
LEVIN_API const std::vector<Cluster>& known_clusters();
/// Returns a preset, or what a TOML file holds. Throws Error "strategy.forecast.cluster" for a name
/// that is neither, and for rates that are not above 0.
LEVIN_API Cluster read_cluster(const std::string& name_or_file);
LEVIN_API std::string to_toml(const Cluster& cluster);

/// Seconds of an operator of so many FLOPs, which reads and writes so many bytes. is_half: it computes in
/// bfloat16 or float16.
LEVIN_API double operator_seconds(const Cluster& cluster, double flops, double bytes, bool is_half);

/// Seconds of a collective ("all_reduce", "all_gather", "reduce_scatter", "broadcast") over ranks.
/// bytes: of the whole tensor. within: its ranks are on one node.
LEVIN_API double collective_seconds(const Cluster& cluster, std::string_view name, int64_t ranks,
                                    int64_t bytes, bool within);

}  // namespace levin::forecast
