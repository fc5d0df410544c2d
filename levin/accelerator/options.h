#pragma once
// AcceleratorOptions: the options of an Accelerator, named as in Hugging Face Accelerate; and
// EngineOptions, which the Trainer has too. Set them in code, by flags or in a TOML file.
//
//   levin::AcceleratorOptions options{.mixed_precision = "bf16", .gradient_accumulation_steps = 4};
//   levin::parse_into(argc, argv, options);  // --strategy fsdp --devices 8
//   levin::Accelerator accelerator(options);

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/optim/grad_scaler.h"
#include "levin/strategy/options.h"

namespace levin {

/// Options of the communication between processes.
struct CommOptions {
  /// Communication backend: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi.
  std::string backend = "auto";
  double timeout_s = 1800;         ///< timeout of a collective, seconds
  double connect_timeout_s = 300;  ///< timeout for all processes to connect at the start, seconds
  /// Timeout while a process prepares data (prepare_data), seconds.
  double prepare_timeout_s = 86400;
  /// Before each collective between GPUs, check that all ranks make the same call. Collectives
  /// between CPUs are always checked.
  bool check = false;

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Policy for a step whose loss is NaN or infinite, or far above the losses before it (a spike).
struct LossGuardOptions {
  /// off, warn, skip, stop or, with the Trainer, rollback, for a NaN or infinite loss. rollback: the
  /// run loads its newest checkpoint and goes on with the batches after the bad one.
  std::string nan_policy = "off";
  std::string spike_policy = "off";  ///< the same for a spike
  double spike_factor = 3.0;         ///< a loss above this multiple of the running mean is a spike
  /// Batches of the running mean; until that many batches have been seen, no loss is a spike.
  int64_t spike_window = 100;
  int64_t max_rollbacks = 3;  ///< rollbacks in a run; one more is an error

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Offload: state that is kept outside of memory. It follows DeepSpeed's offload_optimizer with device "nvme"
/// (ZeRO-Infinity).
struct OffloadOptions {
  // Behaviour
  /// no; optimizer: each rank keeps its optimizer state in a file on a disk (that of a GPU in pinned memory of the
  /// host), and in memory (on the GPU) only the part that is being updated; parameters: fsdp (and zero of stage 3) keeps each rank's rows of the parameters there too, and in
  /// memory only the units that are gathered (FsdpOptions::gathered_mb). The result is the same bit for bit.
  std::string state = "no";
  /// Folder of that file, on a local disk (NVMe). Empty: default_root_dir of the Trainer, project_dir of the
  /// Accelerator, or else TMPDIR.
  std::string folder = {};
  bool tmpfs = false;  ///< accept a folder in memory (tmpfs), which saves none
  // Performance
  int64_t memory_mb = 256;  ///< memory of a rank for state that is read, updated and written, MiB

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Sizes of the axes that the ranks of a run are divided into; follows
/// accelerate.utils.ParallelismConfig, whose axes are those of torch's DeviceMesh. If a size is above
/// 1, their product must be the number of ranks.
struct ParallelismConfig {
  int64_t dp_replicate_size = 1;  ///< ranks with a copy of the model each: strategy ddp
  int64_t dp_shard_size = 1;      ///< ranks that parameters are sharded over: strategy fsdp or zero
  int64_t tp_size = 1;            ///< tensor parallelism, which is not there yet: 1
  int64_t cp_size = 1;            ///< context parallelism, which is not there yet: 1
  int64_t sp_size = 1;            ///< sequence parallelism (Ulysses), which is not there yet: 1

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// The options that the Trainer and the Accelerator share, without the choice of devices and
/// processes. Both hold it as `engine`. Names of flags, TOML keys and checkpoint entries leave
/// "engine" out.
struct EngineOptions {
  CommOptions comm = {};  ///< communication between processes
  /// Sizes of data-parallel axes, which choose ddp or fsdp if the strategy is auto.
  ParallelismConfig parallelism_config = {};
  /// Samples of an optimizer step over all ranks, as train_batch_size of DeepSpeed: the loader's
  /// batch size * gradient accumulation * ranks. It sets gradient accumulation if that is 1, and
  /// is compared with it otherwise. 0: not used. An Accelerator takes the batch size of its first
  /// loader.
  int64_t train_batch_size = 0;
  bool use_distributed_sampler = true;  ///< give each process its own part of the data
  bool sync_batchnorm = false;          ///< synchronize batch norm statistics over all processes
  /// Optimizers keep float32 copies (master weights) of bf16-true and 16-true parameters and update
  /// the copies.
  bool master_weights = false;
  optim::GradScalerOptions scaler = {};  ///< loss scaling of 16-mixed
  LossGuardOptions loss_guard = {};      ///< policy for NaN losses and loss spikes
  DdpOptions ddp = {};                   ///< options of strategy ddp
  FsdpOptions fsdp = {};                 ///< options of strategies fsdp and zero
  OffloadOptions offload = {};           ///< optimizer state in a file
  /// Memory of a rank with which strategy auto reckons, GB (max_memory of Accelerate). 0: the free memory of the
  /// machine and its control group (cgroup), divided by the ranks of the machine, or the free memory of the GPU.
  double max_memory_gb = 0.0;
  /// no: each training step runs eagerly. replay: the step is recorded and then replayed without
  /// running its code. The step of a module lasts from training_step to the optimizer's step; in a
  /// loop of your own it is the function given to Accelerator::compile(). XLA devices compile steps
  /// with both values.
  std::string compile = "no";
  /// When to run a replayed step eagerly instead and compare it with the recording: auto, a number,
  /// every or no. auto checks calls 1, 2, 4, 8, ... of each recording; a number 100 checks each
  /// 100th call. Both also check the first call of an epoch, the call after a validation, and the
  /// call after other code has written parameters. every checks all calls, so nothing is replayed.
  std::string compile_check = "auto";
  /// On a difference from the recording: warn (and stop replaying) or stop (Error "graph.check").
  std::string compile_check_policy = "warn";
  /// Limit in MB for the memory of a check, not counting state and batch; a check that needs more
  /// is skipped. 0: no limit. During a check, an eager step's memory comes on top of the replay's.
  double compile_check_memory = 0.0;
  /// Fraction of the activation memory that a replayed step keeps for backward; the rest is
  /// recomputed. 1: keep all.
  double activation_memory_budget = 1.0;
  /// PJRT plugin for xla: cpu, cuda, tpu or a file; "": search for one
  std::string pjrt_plugin = {};

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Numbered checkpoints for save_state() without a path; follows
/// accelerate.utils.ProjectConfiguration.
struct ProjectConfiguration {
  bool automatic_checkpoint_naming = false;  ///< save_state() numbers its folders
  int64_t total_limit = 0;                   ///< number of the newest checkpoints to keep; 0: all
  int64_t iteration = 0;                     ///< number of the first checkpoint
  /// Write on each machine, for machines without a shared file system.
  bool save_on_each_node = false;
};

/// Division of the data between processes; follows accelerate.utils.DataLoaderConfiguration.
struct DataLoaderConfiguration {
  /// batch_size is the total over all processes and is split between them
  bool split_batches = false;
  /// Only rank 0 reads the data and sends the batches to the others.
  bool dispatch_batches = false;
  /// All processes get the same number of batches: if the number of samples is not a multiple of
  /// the number of processes, the first samples repeat at the end of the epoch.
  bool even_batches = true;
  std::optional<int64_t> data_seed = {};  ///< seed of the sample order; unset: that of the loader
};

/// Gradient accumulation; follows accelerate.utils.GradientAccumulationPlugin. Its adjust_scheduler
/// has no counterpart, since schedules count optimizer steps.
struct GradientAccumulationPlugin {
  int64_t num_steps = 0;  ///< batches per optimizer step; 0: gradient_accumulation_steps
  /// An epoch's end ends the accumulation window, even an incomplete one.
  bool sync_with_dataloader = true;
  /// Gradients are reduced over the processes after each batch of an accumulation window. The step
  /// is the same and needs less memory under sharded strategies.
  bool sync_each_batch = false;
};

/// Options of Accelerator::autocast(); follows accelerate.utils.AutocastKwargs.
struct AutocastKwargs {
  bool enabled = true;        ///< false disables autocast inside an enabled scope
  bool cache_enabled = true;  ///< cast each parameter once, until the outermost scope ends
};

/// Options of Accelerator::join_uneven_inputs().
struct JoinOptions {
  /// Divide the sum of gradients by the number of all processes, also after some have run out of
  /// batches; false: by the number of processes that still have a batch.
  bool divide_by_initial_world_size = true;
};

/// Options of LocalSGD.
struct LocalSgdOptions {
  int64_t local_sgd_steps = 8;  ///< optimizer steps between two averages
  bool enabled = true;          ///< false: gradients are reduced in each step, as without LocalSGD
};

/// Options of Accelerator::prepare_model().
struct PrepareModelOptions {
  /// The model is only evaluated: it is placed on the device and runs under the precision. It is not
  /// sharded, its batch norm is not synchronized, no optimizer trains it, and save_state() leaves
  /// it out.
  bool evaluation_mode = false;
};

/// Options of an Accelerator.
struct AcceleratorOptions {
  std::string mixed_precision = "no";       ///< no, bf16, fp16, or any name of parse_precision
  int64_t gradient_accumulation_steps = 1;  ///< batches per optimizer step, see accumulate()
  bool cpu = false;                         ///< use the CPU even if there is a GPU
  DataLoaderConfiguration dataloader_config = {};  ///< how loaders are split between processes
  /// Random states that all processes copy from the main process at the start of each loop over a
  /// loader: torch (the CPU generator, dropout's for example), cuda, and generator (the order of
  /// samples), which is always copied.
  std::vector<std::string> rng_types = {};
  std::vector<std::string> log_with = {};  ///< csv, jsonl, mlflow, tensorboard, or all
  std::string project_dir = {};  ///< folder of tracker logs and of checkpoints saved without a path
  ProjectConfiguration project_config = {};  ///< numbered checkpoints
  /// Details of gradient accumulation.
  GradientAccumulationPlugin gradient_accumulation_plugin = {};
  /// Schedules step with each optimizer step that is not skipped; false: only by
  /// PreparedOptimizer::step_schedule().
  bool step_scheduler_with_optimizer = true;
  std::string accelerator = "auto";  ///< kind of device: auto, cpu, gpu (cuda), tpu or xla
  /// A name in strategy_names(). auto: single for one rank, ddp for several, or zero or fsdp if ddp does
  /// not fit the memory (max_memory_gb).
  std::string strategy = "auto";
  /// Number of processes on this machine. 0: as many as the launcher started, or 1 without a
  /// launcher; -1: as many as the launcher started, or one for each GPU.
  ///
  /// With tpu and xla: number of devices of one process, which reads batches of `devices` times the
  /// batch size and splits them between the devices. There, 0 and -1 both mean all TPU cores or
  /// GPUs of the machine, or one device with a CPU plugin.
  int64_t devices = 0;
  int64_t num_nodes = 1;      ///< number of machines
  EngineOptions engine = {};  ///< options shared with the Trainer

  /// Returns the batches per optimizer step. Throws Error "accelerator.accumulate" if the plugin
  /// and gradient_accumulation_steps are set to different numbers.
  LEVIN_API int64_t accumulation_steps() const;

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

}  // namespace levin
