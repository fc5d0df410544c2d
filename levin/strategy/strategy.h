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
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace levin::files {
class ScratchFile;
}  // namespace levin::files
namespace levin::xla {
class Runtime;
}  // namespace levin::xla

namespace levin {

/// The parameters from which a strategy is made.
struct StrategyContext {
  comm::ProcessGroup group = {};  ///< all ranks of the run
  DdpOptions ddp = {};
  FsdpOptions fsdp = {};
  std::shared_ptr<xla::Runtime> xla = nullptr;  ///< set for an XLA device
  /// The file in which fsdp and zero keep each rank's rows (--offload parameters), or null.
  std::shared_ptr<files::ScratchFile> parameter_file = nullptr;
  bool on_gpu = false;
  bool recordable = false;  ///< steps are recorded: exchanges are operators, after backward
};

/// How a recorded step's collectives may be changed (graph/passes/passes.h). They stay those of an
/// eager step, in their order, so that ranks that replay the step and ranks that run it eagerly go
/// together.
struct RecordedPasses {
  /// Most bytes of collectives that are under way at a time; 0: they are not overlapped.
  int64_t bytes_under_way = 0;
};

/// As long as it lives, parameters are full, and forward passes and backward may compute with them.
class LEVIN_API ComputeScope {
 public:
  virtual ~ComputeScope();
};

/// Unsupported requests are errors that name the strategy and the feature, never passed over. One
/// object is for what is prepared together; other modules get another.
class LEVIN_API Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  std::string_view name() const { return name_; }
  /// Returns the ranks that train on different data: all ranks, or a part of them if a model is
  /// sharded over some.
  comm::ProcessGroup& data_group() { return data_group_; }
  /// The part of the training and evaluation data that this rank reads.
  DataSlice slice() const { return {data_group_.rank(), data_group_.size()}; }

  /// Places the module's parameters and buffers on the device, and shards or broadcasts them. values:
  /// what those get that have no memory yet (init_on_meta).
  virtual void setup(torch::nn::Module& module, at::Device device,
                     InitValues values = InitValues::kSeeded) = 0;
  /// Builds one optimizer over the parameters as they were placed.
  virtual std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                            std::vector<NamedTensor> parameters);
  /// Returns the scope in which forward passes run, in training and in evaluation; nullptr if
  /// parameters are full at all times.
  virtual std::unique_ptr<ComputeScope> compute_scope() { return nullptr; }

  /// loss.backward(). With synchronize the gradients agree over the ranks afterwards; without it (a
  /// batch that is not the last of its window) they need not. An undefined loss, of a batch that
  /// gave none, takes part in the exchange of the others with the gradients that earlier batches of
  /// the window left here; has_gradients says whether there are any. Returns whether any rank had
  /// gradients, the same on all. Throws Error "strategy.skipped_batch" where the strategy cannot
  /// take an undefined loss.
  virtual bool backward(const at::Tensor& loss, bool synchronize, bool has_gradients = false) = 0;
  /// Tensors by which the recording of a step knows what the strategy shows beside parameters: full
  /// values of sharded parameters.
  virtual std::vector<NamedTensor> recorded_state() const { return {}; }
  virtual RecordedPasses recorded_passes() const { return {}; }
  /// Returns memory that other ranks read where it lies, for what collectives send in a replay
  /// (graph::ReplayOptions).
  virtual std::vector<at::Tensor> exchange_memory() const { return {}; }
  /// Call it before a step that may be replayed, on all ranks: what other code has written to
  /// parameters since the last step reaches them.
  virtual void before_replay() {}
  /// Call it at the end of a step that is recorded: refuses the recording (graph::HostPart::refuse) if
  /// something lives on that a replay would not know of.
  virtual void after_recording() {}
  /// Waits until the gradients of the last backward agree. A strategy may leave that to update().
  virtual void wait_gradients() {}
  /// The optimizer's step; buffers are then the same on all ranks again.
  virtual void update(optim::Optimizer& optimizer) { optimizer.step(); }
  /// Gives all ranks rank 0's buffers, before evaluation: forward passes since the last update may
  /// have changed them apart. All ranks call these three.
  void agree_on_buffers() { meet(Meeting::kAgreeOnBuffers); }
  /// Call it after an evaluation, in which ranks may have had different numbers of batches.
  void end_evaluation() { meet(Meeting::kEndEvaluation); }
  /// Between runs: who reads a parameter sees the whole, or an error that says how to get it.
  void rest() { meet(Meeting::kRest); }
  /// Makes the modules ordinary ones again, whole on every rank. Nothing else is called after it.
  void release() { meet(Meeting::kRelease); }
  /// Does optim::clip_grad_norm over the full gradients, on whatever ranks they lie.
  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type);

  /// Returns the state that a resumed run needs beside parameters to repeat bit for bit.
  virtual State state_dict() const { return {}; }
  virtual void load_state_dict(const State&) {}

 protected:
  enum class Meeting { kAgreeOnBuffers, kEndEvaluation, kRest, kRelease };
  /// A point that all ranks reach together, outside of steps.
  virtual void meet(Meeting) {}

  Strategy(std::string_view name, const comm::ProcessGroup& data_group)
      : name_(name), data_group_(data_group) {}

 private:
  std::string_view name_;
  comm::ProcessGroup data_group_;
};

/// A strategy under which ranks may run out of data at different times (PyTorch's Joinable). From
/// begin_join on a rank that has none left calls shadow_step() until it gives false: it takes part
/// in one backward of the others with no gradient of its own.
class LEVIN_API Joinable {
 public:
  virtual ~Joinable();
  /// Throws Error "strategy.fsdp.join" if each forward pass needs all ranks.
  virtual void check_join() const {}
  /// by_present: the mean is over the ranks that still have data.
  virtual void begin_join(bool by_present) = 0;
  virtual bool shadow_step() = 0;
  /// For a rank that leaves with an exception, and makes no more of the others' steps.
  virtual void end_join() = 0;
};

/// By name, "auto" (single for one rank, ddp for several) or one of strategy_names(). Throws Error
/// "strategy.name" listing them and saying which one is nearest, "strategy.single.world_size",
/// "strategy.ddp.options".
LEVIN_API std::unique_ptr<Strategy> make_strategy(std::string_view name,
                                                  const StrategyContext& context);
LEVIN_API std::vector<std::string> strategy_names();

}  // namespace levin
