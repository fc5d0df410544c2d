#include "levin/accelerator/options.h"

#include "levin/base/check.h"
#include "levin/graph/compile/contract.h"

namespace levin {

void CommOptions::fields(FieldVisitor& field) {
  field("backend", backend,
        "communication backend: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi");
  field("comm_timeout_s", timeout_s,
        "timeout of collectives and of other waits for another process, seconds");
  field("comm_connect_timeout_s", connect_timeout_s,
        "timeout for all processes to connect at the start, seconds");
  field("comm_prepare_timeout_s", prepare_timeout_s,
        "how long to wait for the process that runs prepare_data, seconds");
  field("comm_check", check,
        "before each collective between GPUs, check that all ranks make the same call; between "
        "CPUs this is always checked");
}

void ParallelismConfig::fields(FieldVisitor& field) {
  field("dp_replicate_size", dp_replicate_size,
        "number of ranks with a copy of the model each (ddp); 1: not set");
  field("dp_shard_size", dp_shard_size,
        "number of ranks that parameters are sharded over (fsdp); 1: not set");
  field("tp_size", tp_size, "tensor parallelism, which is not there yet: 1");
  field("cp_size", cp_size, "context parallelism, which is not there yet: 1");
  field("sp_size", sp_size, "sequence parallelism (Ulysses), which is not there yet: 1");
}

void OffloadOptions::fields(FieldVisitor& field) {
  field("offload", state,
        "no; optimizer: keep the optimizer state in a file on a disk (a GPU's in memory of the "
        "host), "
        "and in memory only the part that is being updated; parameters: with fsdp, keep parameters "
        "there too, and in memory the "
        "units that are being computed");
  field("offload_folder", folder,
        "folder of that file, on a local disk; empty: the run's folder, or else TMPDIR");
  field("offload_memory_mb", memory_mb,
        "memory of a rank for state that is read, updated and written, MiB");
  field("offload_tmpfs", tmpfs, "accept a folder in memory (tmpfs), which saves none");
}

void EngineOptions::fields(FieldVisitor& field) {
  comm.fields(field);
  parallelism_config.fields(field);
  field("train_batch_size", train_batch_size,
        "samples of an optimizer step over all ranks: sets gradient accumulation from the loader's "
        "batch size, or checks it; 0: not used");
  field("use_distributed_sampler", use_distributed_sampler,
        "give each process its own part of the data");
  field("sync_batchnorm", sync_batchnorm, "synchronize batch norm statistics over all processes");
  field("master_weights", master_weights,
        "keep float32 copies of bf16-true and 16-true parameters for the optimizer to update");
  scaler.fields(field);
  loss_guard.fields(field);
  ddp.fields(field);
  fsdp.fields(field);
  offload.fields(field);
  field("max_memory_gb", max_memory_gb,
        "strategy auto: memory of a rank, GB; 0: its part of the free memory of the machine, or "
        "the free "
        "memory of the GPU");
  field("compile", compile,
        fmt::format("no: run each training step eagerly; replay: record the step and replay it "
                    "without running its code; XLA devices compile steps with either value. {}",
                    graph::kReplayContract));
  field("compile_check", compile_check,
        "when to run the step eagerly and compare it with the recording: auto, every (no step is "
        "replayed), no, or N for every N-th call");
  field("compile_check_policy", compile_check_policy,
        "if the step differs from the recording: warn (and stop replaying) or stop (the run)");
  field("compile_check_memory", compile_check_memory,
        "skip checks that need more than this many MB of extra memory (0: no limit)");
  field("activation_memory_budget", activation_memory_budget,
        "fraction of a replayed step's activations to keep for backward; the rest is recomputed "
        "(1: keep all)");
  field("pjrt_plugin", pjrt_plugin,
        "PJRT plugin for --accelerator xla: cpu, cuda, tpu or a plugin's file; empty: search for "
        "one");
}

void AcceleratorOptions::fields(FieldVisitor& field) {
  field("mixed_precision", mixed_precision, "no, bf16, fp16, bf16-true, 16-true or 64-true");
  field("gradient_accumulation_steps", gradient_accumulation_steps,
        "gradient accumulation: batches per optimizer step");
  field("split_batches", dataloader_config.split_batches,
        "a loader's batch_size is the total over all processes and is split between them");
  field("dispatch_batches", dataloader_config.dispatch_batches,
        "only the main process reads the data and sends the batches to the others");
  field("even_batches", dataloader_config.even_batches,
        "give all processes the same number of batches; the first samples repeat if the number "
        "does not divide");
  field("data_seed", dataloader_config.data_seed,
        "seed of the sample order; none: the loaders' own");
  field("sync_with_dataloader", gradient_accumulation_plugin.sync_with_dataloader,
        "end the accumulation window at the end of an epoch, even if it is incomplete");
  field("sync_each_batch", gradient_accumulation_plugin.sync_each_batch,
        "reduce gradients over processes after each batch of an accumulation window, not only at "
        "its end");
  field("rng_types", rng_types,
        "random states to copy from the main process at the start of each loop over a loader: "
        "generator, torch, cuda");
  field("log_with", log_with, "trackers to log with: csv, jsonl, mlflow, tensorboard, or all");
  field("project_dir", project_dir,
        "folder for tracker logs and for checkpoints saved without a path");
  field("automatic_checkpoint_naming", project_config.automatic_checkpoint_naming,
        "number the checkpoints of project_dir");
  field("total_limit", project_config.total_limit,
        "maximum number of these checkpoints to keep; 0: all");
  field("save_on_each_node", project_config.save_on_each_node,
        "write checkpoints on each machine, for machines without a shared file system");
  field("step_scheduler_with_optimizer", step_scheduler_with_optimizer,
        "step the schedules with the optimizer; false: only step_schedule() does");
  field("cpu", cpu, "use the CPU even if there is a GPU");
  field("accelerator", accelerator, "kind of device: auto, cpu, gpu, tpu or xla");
  field("strategy", strategy,
        "distributed strategy: auto, single, ddp, fsdp, zero or xla; auto: single for one rank, "
        "ddp for "
        "several, or zero or fsdp if ddp does not fit the memory");
  field("devices", devices,
        "processes on this machine; 0: as many as were started; -1: one for each GPU. With tpu and "
        "xla: devices of the process; 0: all, with a CPU plugin one. N > 1 processes start the "
        "program N times, from main(): code before the Accelerator runs in each, with an empty "
        "stdin");
  field("num_nodes", num_nodes, "number of machines");
  engine.fields(field);
}

int64_t AcceleratorOptions::accumulation_steps() const {
  const int64_t plugin = gradient_accumulation_plugin.num_steps;
  LEVIN_CHECK(
      plugin == 0 || gradient_accumulation_steps == 1 || plugin == gradient_accumulation_steps,
      "accelerator.accumulate",
      "got gradient_accumulation_steps = {} and gradient_accumulation_plugin.num_steps = {}; set "
      "one of them",
      gradient_accumulation_steps, plugin);
  return plugin == 0 ? gradient_accumulation_steps : plugin;
}

}  // namespace levin
