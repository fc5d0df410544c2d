#pragma once
// The choice of --strategy auto: the first of several settings whose memory fits, reckoned from the
// parameters alone, before a step has run.
// Not for users.
//
//   const std::vector<int64_t> state = state_bytes_of(description, configs);
//   const AutomaticChoice choice = choose_unrecorded(description, state, automatic_settings(4),
//                                                    cluster, 8e9);
//   puts(choice.reason.c_str());   // ddp on dp=4: a rank needs 3.2 GB of ...

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/optimizer_config.h"
#include "levin/strategy/forecast/forecast.h"

namespace levin::forecast {

/// Part of the memory that is left for activations, which nobody knows before the first step.
constexpr double kPartForActivations = 0.2;

/// Returns the settings from which --strategy auto chooses, from the one that it likes most: ddp,
/// zero 1, zero 2, fsdp, zero 3; single for one rank.
LEVIN_API std::vector<Setting> automatic_settings(int64_t ranks);

/// Returns the bytes of the optimizers' state by parameter. Parameters that do not train have none.
/// An empty list means optimizers that are not known yet: each parameter then counts with the two
/// tensors that Adam keeps. master_weights: as the option of the run.
LEVIN_API std::vector<int64_t> state_bytes_of(const Description& description,
                                              const std::vector<OptimizerConfig>& configs,
                                              bool master_weights = false);

/// Returns a step that reads the parameters in their order in forward, and in the opposite order in
/// backward. It has no activations, and its operators take no time.
LEVIN_API RecordedStep unrecorded_step(const Description& description,
                                       std::vector<int64_t> state_bytes);

struct AutomaticChoice {
  size_t chosen = 0;  ///< in the settings
  bool fits = true;   ///< false: no setting fits, and this one needs least
  std::string reason;
};
/// Chooses the first setting whose memory is at most that, less kPartForActivations of it; else the
/// one that needs least. Of the cluster it takes the kind of device, the links' backends and
/// ranks_per_node. memory_bytes: of a rank, without what the process itself takes.
LEVIN_API AutomaticChoice choose_unrecorded(const Description& description,
                                            const std::vector<int64_t>& state_bytes,
                                            const std::vector<Setting>& settings,
                                            const Cluster& cluster, double memory_bytes);

}  // namespace levin::forecast
