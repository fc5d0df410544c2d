#pragma once
// AcceleratorOptions: what a run of the engine is made of, under Accelerate's names; and EngineOptions,
// the part of them that the Trainer has too. Read from code, flags and TOML before anything else is built.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/optim/grad_scaler.h"
#include "levin/strategy/options.h"

namespace levin {

/// The processes of a run talk to each other so.
struct CommOptions {
  /// What carries bytes between processes: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi.
  std::string backend = "auto";
  double timeout_s = 1800;           ///< of one exchange between processes
  double connect_timeout_s = 300;    ///< for all processes to come at the start
  double prepare_timeout_s = 86400;  ///< while one of them prepares data (prepare_data)
  bool check = false;  ///< compare each exchange between GPUs first, as it is between CPUs

  LEVIN_API void fields(FieldVisitor& field);
};

/// A step whose loss is NaN or infinite, or far above the losses before it.
struct LossGuardOptions {
  std::string nan_policy = "off";    ///< off, warn, skip or stop, for a loss that is no number
  std::string spike_policy = "off";  ///< the same for a loss far above those before
  double spike_factor = 3.0;         ///< how many times the running mean is far above
  int64_t spike_window = 100;        ///< batches that the mean runs over, and that come before any
                                     ///< is called a spike

  LEVIN_API void fields(FieldVisitor& field);
};

/// The options that the Trainer and the Accelerator share, but for those that say where a run runs:
/// both hold it as `engine`. Flags, TOML keys and checkpoints name its options without "engine".
struct EngineOptions {
  CommOptions comm = {};
  bool use_distributed_sampler = true;  ///< processes read different parts of the data
  bool sync_batchnorm = false;          ///< batch norm over the batches of all processes
  /// Parameters of bf16-true and 16-true are updated in float32 copies, which optimizers keep.
  bool master_weights = false;
  optim::GradScalerOptions scaler = {};  ///< of 16-mixed
  LossGuardOptions loss_guard = {};      ///< losses that are NaN, or far above those before
  DdpOptions ddp = {};
  FsdpOptions fsdp = {};  ///< of strategies fsdp and zero
  /// no, or replay: the step is recorded and replayed, and its code is called no more. The step is a
  /// module's, from training_step to the optimizer's step, or what Accelerator::compile() is given.
  /// On XLA devices steps are programs in either case.
  std::string compile = "no";
  /// When the code of a replayed step is run in the replay's place and compared with it: auto (the
  /// 1st, 2nd, 4th, 8th, ... call, an epoch's first, those after a validation and after something
  /// else wrote parameters), a number n (in place of those: each n-th), every (all: nothing is
  /// replayed) or no.
  std::string compile_check = "auto";
  /// A difference: warn (and replay no more), or stop (Error "graph.check").
  std::string compile_check_policy = "warn";
  /// The most MB, beside state and batch, that a step may need to be checked: a check takes the
  /// memory of a step that is not replayed, beside the replay's. 0: no limit.
  double compile_check_memory = 0.0;
  /// The fraction of its activations that a replayed step keeps for its backward pass: the rest is
  /// computed again. 1: all are kept.
  double activation_memory_budget = 1.0;
  std::string pjrt_plugin = {};  ///< of xla: cpu, cuda, tpu or a file; "": what is found

  LEVIN_API void fields(FieldVisitor& field);
};

/// Numbered checkpoints, for save_state() without a path.
struct ProjectConfiguration {
  bool automatic_checkpoint_naming = false;  ///< save_state() names its folder itself
  int64_t total_limit = 0;                   ///< how many of those are kept, the newest; 0: all
  int64_t iteration = 0;                     ///< number of the first one
  bool save_on_each_node = false;  ///< each machine writes one, where they share no file system
};

/// How loaders are read over the processes.
struct DataLoaderConfiguration {
  bool split_batches = false;     ///< a loader's batch_size is that of all processes together
  bool dispatch_batches = false;  ///< rank 0 alone reads the data and hands out the batches
  bool even_batches = true;  ///< equal counts on all processes: the first samples come again at
                             ///< the end of an epoch, where the number does not divide
  std::optional<int64_t> data_seed = {};  ///< of the order of samples, in place of the loaders' own
};

/// The accumulation window: the batches of an optimizer step. (Accelerate's adjust_scheduler has no counterpart: schedules
/// count optimizer steps.)
struct GradientAccumulationPlugin {
  int64_t num_steps = 0;             ///< batches of a window; 0: gradient_accumulation_steps
  bool sync_with_dataloader = true;  ///< the end of an epoch ends a window, however small it is
  bool sync_each_batch =
      false;  ///< gradients agree over the processes after each batch of a window,
              ///< for the same step with less memory under sharded strategies
};

struct AcceleratorOptions {
  std::string mixed_precision = "no";       ///< no, bf16, fp16, or any name of parse_precision
  int64_t gradient_accumulation_steps = 1;  ///< batches of an optimizer step, see accumulate()
  bool cpu = false;                         ///< the CPU even where there is a GPU
  DataLoaderConfiguration dataloader_config = {};
  /// Random states that are the main process' on all of them from the start of each loop over a
  /// loader: torch (dropout and whatever else the CPU draws), cuda, and generator (of the samples'
  /// order), which always is.
  std::vector<std::string> rng_types = {};
  std::vector<std::string> log_with = {};  ///< trackers: csv, tensorboard, or all
  std::string project_dir = {};            ///< of trackers and of checkpoints without a path
  ProjectConfiguration project_config = {};
  GradientAccumulationPlugin gradient_accumulation_plugin = {};
  bool step_scheduler_with_optimizer = true;  ///< schedules move with steps that are taken; false:
                                              ///< by PreparedOptimizer::step_schedule() alone
  std::string accelerator = "auto";           ///< auto, cpu, gpu (cuda), tpu, xla: what computes
  std::string strategy = "auto";              ///< one of strategy_names()
  /// Processes on this machine; 0: as they were started, or 1; -1: as they were started, or one for
  /// each GPU. Of tpu and xla: devices of one process, which share its batches (each is as many
  /// times as large); 0 or -1: all TPU cores or GPUs, of a CPU plugin one.
  int64_t devices = 0;
  int64_t num_nodes = 1;  ///< machines
  EngineOptions engine = {};

  /// Batches of an optimizer step. Throws Error "accelerator.accumulate" where the plugin and
  /// gradient_accumulation_steps name two numbers.
  LEVIN_API int64_t accumulation_steps() const;

  LEVIN_API void fields(FieldVisitor& field);
};

}  // namespace levin
