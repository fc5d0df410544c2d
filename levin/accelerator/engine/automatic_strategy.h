#pragma once
// AutomaticStrategy: what --strategy auto means in a run of several ranks: ddp, if a rank's memory
// holds the model so, else the first of zero 1, zero 2, fsdp and zero 3 that fits.
// Not for users.
//
// A strategy is made before the module is known, and the module is placed before its optimizers are.
// So there are two choices: choose() with the parameters alone before the module is placed, and
// again with gradients and optimizer state before the optimizers are built. The engine moves the
// module if the second differs from the first.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/accelerator/options.h"
#include "levin/accelerator/processes.h"
#include "levin/accelerator/stepping/precision.h"
#include "levin/base/export.h"
#include "levin/module/optimizer_config.h"
#include "levin/strategy/forecast/automatic.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::detail {

/// The ranks of a run.
struct RunPlace {
  int64_t ranks = 1;
  int64_t num_nodes = 1;
  at::DeviceType device = at::kCPU;
  std::string backend = "shm";
};

/// Returns the settings that the options allow on these ranks, from the one that is liked most.
/// batches: of an optimizer step. There is always one.
LEVIN_API std::vector<forecast::Setting> allowed_settings(const AcceleratorOptions& options,
                                                          const RunPlace& run, int64_t batches);

class LEVIN_API AutomaticStrategy {
 public:
  /// options: of the run, which each choice changes (strategy, zero_stage). They and the processes
  /// must outlive it.
  AutomaticStrategy(AcceleratorOptions& options, Processes& processes, at::Device device,
                    const Precision& precision);

  /// Notes the parameters of a module that is about to be placed.
  void add(const torch::nn::Module& module);
  /// Chooses by the parameters alone. All ranks call it. Returns whether the strategy is another.
  bool choose();
  /// Chooses by all that a rank keeps in training, and says why; the choice is then settled.
  /// configs: empty if they are not known, so that Adam's state is assumed.
  bool choose(const std::vector<OptimizerConfig>& configs, int64_t batches);
  bool is_settled() const { return settled_; }
  /// For other modules.
  void begin_anew();

 private:
  bool decide(forecast::Description description, std::vector<int64_t> state_bytes, int64_t batches,
              bool says);
  bool take(const forecast::Setting& setting);
  std::vector<forecast::Setting> settings(int64_t batches) const;
  forecast::Cluster cluster() const;
  double own_memory_bytes() const;

  AcceleratorOptions& options_;
  Processes& processes_;
  at::Device device_;
  Precision precision_;
  int64_t given_stage_;
  forecast::Description description_;
  std::vector<at::Tensor> parameters_;  ///< as description_ has them
  std::string cannot_shard_;            ///< why, or empty
  bool settled_ = false;
};

}  // namespace levin::detail
