#pragma once
// Strategy: how a module's parameters, gradients and optimizer state are kept over the ranks.
// Stands between the module and the optimizer; the engine calls it, users only name it.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/ddp/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace levin::xla {
class Runtime;
}  // namespace levin::xla

namespace levin {

/// What a strategy is made from.
struct StrategyContext {
  comm::ProcessGroup group = {};  ///< all ranks of the run
  DdpOptions ddp = {};
  std::shared_ptr<xla::Runtime> xla = nullptr;  ///< where the device is one of XLA
  bool recordable = false;  ///< steps are to be recorded: exchanges are operators, after backward
};

/// Unsupported requests are errors that name the strategy and the feature, never passed over.
class LEVIN_API Strategy {
 public:
  virtual ~Strategy();

  virtual std::string_view name() const = 0;
  /// The part of the training and evaluation data that this rank reads.
  virtual DataSlice slice() const = 0;

  /// How many devices of this rank share each of its batches: a batch is so many times a loader's
  /// batch size.
  virtual int64_t parts_of_batch() const { return 1; }
  virtual Batch to_device(const Batch& batch, at::Device device) {
    return batch.to(device, /*non_blocking=*/true);
  }
  /// All that a batch is for has been asked for: what was put off begins.
  virtual void end_batch() {}

  /// Places the module's parameters and buffers on the device, and shards or broadcasts them.
  virtual void setup(torch::nn::Module& module, at::Device device) = 0;
  /// Builds one optimizer over the parameters as they were placed.
  virtual std::unique_ptr<optim::Optimizer> build_optimizer(
      const OptimizerConfig& config, std::vector<NamedTensor> parameters) = 0;

  /// loss.backward(); with synchronize the gradients agree over the ranks afterwards, without it
  /// (a micro-batch that is not the last of its group) they need not.
  virtual void backward(const at::Tensor& loss, bool synchronize) = 0;
  /// Takes part in a backward of the other ranks that synchronizes, on a rank whose batch gave no
  /// loss: with the gradients that earlier batches of the group left here, none of this group where
  /// !has_gradients. Whether any rank had some; the same on all that call it. Throws Error
  /// "strategy.skipped_batch" where the strategy of several ranks knows no such thing.
  virtual bool synchronize_gradients(bool has_gradients);
  /// Returns when the gradients of the last backward agree; at once, unless the strategy left them
  /// on their way for update() to wait for.
  virtual void wait_gradients() {}
  /// The optimizer's step; buffers are then the same on all ranks again.
  virtual void update(optim::Optimizer& optimizer) { optimizer.step(); }
  /// An optimizer has made its step.
  virtual void after_step() {}
  /// All ranks' parameters are what a checkpoint is to hold.
  virtual void settle() {}
  /// What forward passes have written to buffers since the last update gives way to rank 0's, so
  /// that all ranks evaluate the same module. All ranks call it.
  virtual void agree_on_buffers() {}
  /// From here until shadow_step() gives false ranks may run out of data at different times; one
  /// that has calls shadow_step(), which takes part in one backward of the others with no gradient
  /// of its own. by_present: the mean is over the ranks that still have data. Throws Error
  /// "strategy.join" where the strategy knows no such thing.
  virtual void begin_join(bool by_present);
  virtual bool shadow_step() { return false; }
  /// The same for a rank that leaves with an exception, and makes no more of the others' steps.
  virtual void end_join() {}
  /// optim::clip_grad_norm over the whole of the gradients, on whatever ranks they lie.
  virtual at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type) = 0;

  /// Lets go of the modules that were set up.
  virtual void forget() = 0;
  /// What must be the same again for a run that is resumed to repeat bit for bit.
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;
};

/// By name, "auto" (single for one rank, ddp for several) or one of strategy_names(). Throws Error
/// "strategy.name" listing them and saying which one is nearest, "strategy.single.world_size",
/// "strategy.ddp.options".
LEVIN_API std::unique_ptr<Strategy> make_strategy(std::string_view name,
                                                  const StrategyContext& context);
LEVIN_API std::vector<std::string> strategy_names();

}  // namespace levin
