#pragma once
// Forecast: the memory, the collectives and the time of a training step under a strategy on a mesh
// of ranks, from the recorded step of one rank. It is arithmetic: no process and no tensor.
// docs/memory.md has the formulas.
// Not for users.
//
//   const Forecast plan = forecast_of(step, description, {.strategy = "fsdp", .mesh = {.shard = 8}},
//                                     read_cluster("h100"));
//   plan.memory_bytes(), plan.step_s, plan.collectives

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/strategy/forecast/cluster.h"
#include "levin/strategy/forecast/description.h"
#include "levin/strategy/forecast/recorded_step.h"

namespace levin::forecast {

/// Ranks with different data. Sharding strategies split over `shard` ranks, which lie next to each
/// other, and keep equal copies on `replicate` groups of these (HSDP).
struct Mesh {
  int64_t replicate = 1;
  int64_t shard = 1;

  int64_t size() const { return replicate * shard; }
};

/// Reads "dp=64,fsdp=8"; replicate and shard are other names of the two axes. Throws Error
/// "strategy.forecast.mesh" for another axis and for sizes below 1.
LEVIN_API Mesh mesh_of(std::string_view text);
LEVIN_API std::string to_text(const Mesh& mesh);

struct LEVIN_API Setting {
  std::string strategy = "ddp";  ///< single, ddp, zero or fsdp
  int64_t zero_stage = 2;        ///< of zero
  Mesh mesh = {};

  /// "zero 2"; other strategies by their names.
  std::string name() const;
};

/// Reads "fsdp", "zero" (stage 2), "zero1" or "zero-3". Throws Error "strategy.forecast.strategy".
LEVIN_API Setting setting_of(std::string_view strategy, const Mesh& mesh);

enum class Kind {
  kParameters,
  kGradients,
  kGradientBuffers,  ///< buckets of ddp, the gradient ring of fsdp and zero
  kOptimizer,
  kBuffers,
  kInputs,
  kActivations,    ///< activations and temporary tensors
  kGathered,       ///< gathered units
  kCommunication,  ///< buffers of gloo and MPI, in which parts of the other ranks arrive
  kRuntime         ///< the process itself
};
constexpr size_t kNumKinds = 10;
LEVIN_API std::string_view name_of(Kind kind);

struct PlannedCollective {
  std::string name;       ///< all_reduce, all_gather, reduce_scatter
  std::string of;         ///< a bucket or a unit
  int64_t ranks = 1;      ///< of its group
  int64_t bytes = 0;      ///< of the whole tensor
  double seconds = 0.0;   ///< from its start to its end, alone on its link
  double hidden_s = 0.0;  ///< of these, while operators run
};

struct LEVIN_API Forecast {
  Setting setting;
  std::array<int64_t, kNumKinds> memory = {};  ///< at the peak of the rank that needs most, by Kind
  std::vector<PlannedCollective> collectives;  ///< of a step, in the order in which they start
  double compute_s = 0.0;                      ///< of the operators
  double step_s = 0.0;
  double samples_per_s = 0.0;  ///< of all ranks
  double tokens_per_s = 0.0;   ///< of all ranks; 0 if inputs are no tokens
  double flops = 0.0;          ///< of a rank's step

  int64_t memory_bytes() const;
  /// Bytes of collectives of this name; all if it is empty.
  int64_t collective_bytes(std::string_view name = {}) const;
  double hidden_s() const;
  double collective_s() const;
};

/// Throws Error "strategy.forecast.mesh" for a mesh that the strategy does not have: single on
/// several ranks, ddp with shards.
LEVIN_API Forecast forecast_of(const RecordedStep& step, const Description& description,
                               const Setting& setting, const Cluster& cluster);

/// Settings that are worth a row of a comparison on so many ranks.
LEVIN_API std::vector<Setting> candidates(int64_t ranks, const Cluster& cluster);

struct Choice {
  std::optional<size_t> best;  ///< in the forecasts; none fits
  std::string reason;
};
/// Chooses the fastest forecast whose memory is at most that; of equal ones, the first. `reason`
/// says why, with the numbers. This is what `--fits` and `--strategy auto` ask.
LEVIN_API Choice choose(const std::vector<Forecast>& forecasts, double memory_bytes);

}  // namespace levin::forecast
