#include "levin/accelerator/engine/parallelism.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "levin/accelerator/engine/device.h"
#include "levin/base/check.h"

namespace levin::detail {
namespace {

struct Axis {
  std::string_view name;
  int64_t size;
};

void check_not_there(const Axis& axis, std::string_view what, std::string_view instead) {
  LEVIN_CHECK(axis.size == 1, "accelerator.parallelism",
              "got {} = {}, but {} is not there yet; set it to 1, and {}", axis.name, axis.size,
              what, instead);
}

}  // namespace

std::string strategy_of(const AcceleratorOptions& options, int64_t ranks) {
  const ParallelismConfig& sizes = options.engine.parallelism_config;
  const Axis replicas{"dp_replicate_size", sizes.dp_replicate_size};
  const Axis shards{"dp_shard_size", sizes.dp_shard_size};
  const Axis tensor{"tp_size", sizes.tp_size}, context{"cp_size", sizes.cp_size};
  const Axis sequence{"sp_size", sizes.sp_size};
  for (const Axis& axis : {replicas, shards, tensor, context, sequence}) {
    LEVIN_CHECK(axis.size >= 1, "accelerator.parallelism",
                "got {} = {}, wanted a number of ranks, or 1 for none", axis.name, axis.size);
  }
  check_not_there(tensor, "tensor parallelism",
                  "shard parameters with dp_shard_size (strategy fsdp) instead");
  check_not_there(context, "context parallelism",
                  "save the memory of long sequences with levin::activation_checkpoint instead");
  check_not_there(sequence, "sequence parallelism",
                  "save the memory of long sequences with levin::activation_checkpoint instead");
  const bool is_hybrid = replicas.size > 1 && shards.size > 1;
  const Axis& axis = shards.size > 1 ? shards : replicas;
  if (axis.size == 1) return options.strategy;
  LEVIN_CHECK(!is_xla(options), "accelerator.parallelism",
              "got {} = {} on XLA devices, which share each batch; leave it out and set --devices",
              axis.name, axis.size);
  LEVIN_CHECK(!is_hybrid || replicas.size * shards.size == ranks, "accelerator.parallelism",
              "got dp_replicate_size = {} and dp_shard_size = {} on {} ranks, wanted sizes whose "
              "product is the number of ranks",
              replicas.size, shards.size, ranks);
  LEVIN_CHECK(
      is_hybrid || axis.size == ranks, "accelerator.parallelism",
      "got {} = {} on {} ranks, wanted the number of ranks; set it to {}, or start {} ranks",
      axis.name, axis.size, ranks, ranks, axis.size);
  const std::string_view wanted = shards.size > 1 ? "fsdp" : "ddp";
  const bool fits = options.strategy == "auto" || options.strategy == wanted ||
                    (options.strategy == "zero" && wanted == "fsdp");
  LEVIN_CHECK(fits, "accelerator.parallelism",
              "got {} = {} with strategy '{}', which does not {} parameters; set --strategy {}, or "
              "leave one of the two out",
              axis.name, axis.size, options.strategy, shards.size > 1 ? "shard" : "replicate",
              wanted);
  return options.strategy == "auto" ? std::string(wanted) : options.strategy;
}

std::string mesh_of(const AcceleratorOptions& options) {
  const ParallelismConfig& sizes = options.engine.parallelism_config;
  const std::string& mesh = options.engine.fsdp.mesh;
  if (sizes.dp_replicate_size == 1 || sizes.dp_shard_size == 1) return mesh;
  const std::string wanted =
      fmt::format("replicate={},fsdp={}", sizes.dp_replicate_size, sizes.dp_shard_size);
  LEVIN_CHECK(mesh.empty() || mesh == wanted, "accelerator.parallelism",
              "got dp_replicate_size = {} and dp_shard_size = {} with --mesh {}; leave one of the "
              "two out",
              sizes.dp_replicate_size, sizes.dp_shard_size, mesh);
  return wanted;
}

}  // namespace levin::detail
