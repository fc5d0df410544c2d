#include "levin/accelerator/options.h"

#include "levin/base/check.h"
#include "levin/graph/compile/contract.h"

namespace levin {

void CommOptions::fields(FieldVisitor& field) {
  field("backend", backend,
        "what carries bytes between processes: auto, shm, gloo, mpi, hierarchical or "
        "hierarchical-mpi");
  field("comm_timeout_s", timeout_s, "longest wait for other processes, seconds");
  field("comm_connect_timeout_s", connect_timeout_s,
        "longest wait for all processes to come at the start, seconds");
  field("comm_prepare_timeout_s", prepare_timeout_s,
        "longest wait for a process that prepares data (prepare_data), seconds");
  field("comm_check", check,
        "compare each exchange between GPUs over the processes first, as it is between CPUs");
}

void EngineOptions::fields(FieldVisitor& field) {
  comm.fields(field);
  field("use_distributed_sampler", use_distributed_sampler,
        "ranks read different parts of the data");
  field("sync_batchnorm", sync_batchnorm, "batch norm over the batches of all processes");
  field("master_weights", master_weights, "update parameters of bf16-true and 16-true in float32");
  scaler.fields(field);
  loss_guard.fields(field);
  ddp.fields(field);
  fsdp.fields(field);
  field("compile", compile,
        fmt::format(
            "no, or replay: training steps are recorded, and replayed without a call of their "
            "code; XLA devices compile steps in either case. {}",
            graph::kReplayContract));
  field(
      "compile_check", compile_check,
      "when the code is run in a replay's place and compared: auto, every, no, or each n-th call");
  field("compile_check_policy", compile_check_policy,
        "where it does something else than the recording: warn and replay no more, or stop");
  field("compile_check_memory", compile_check_memory,
        "the most MB that such a run of the code may take, which has its memory beside the "
        "replay's; steps that need more are not compared (0: no limit)");
  field("activation_memory_budget", activation_memory_budget,
        "part of the step's memory that replay has; what does not fit is computed again");
  field("pjrt_plugin", pjrt_plugin,
        "of --accelerator xla: cpu, cuda, tpu or a plugin's file; empty: what is found");
}

void AcceleratorOptions::fields(FieldVisitor& field) {
  field("mixed_precision", mixed_precision, "no, bf16, fp16, bf16-true, 16-true or 64-true");
  field("gradient_accumulation_steps", gradient_accumulation_steps, "batches of an optimizer step");
  field("split_batches", dataloader_config.split_batches,
        "a loader's batch size is that of all processes together");
  field("dispatch_batches", dataloader_config.dispatch_batches,
        "the first process alone reads the data and hands out the batches");
  field("even_batches", dataloader_config.even_batches,
        "processes get equal counts of batches: samples repeat where the number does not divide");
  field("data_seed", dataloader_config.data_seed,
        "of the order of samples; none: the loaders' own");
  field("sync_with_dataloader", gradient_accumulation_plugin.sync_with_dataloader,
        "the end of an epoch ends an accumulation window, however small it is");
  field("sync_each_batch", gradient_accumulation_plugin.sync_each_batch,
        "gradients agree over the processes after each batch of an accumulation window");
  field("rng_types", rng_types,
        "random states that all processes take from the main one at each loop over a loader: "
        "generator, torch, cuda");
  field("log_with", log_with, "trackers: csv, tensorboard, or all");
  field("project_dir", project_dir, "folder of trackers, and of checkpoints without a path");
  field("automatic_checkpoint_naming", project_config.automatic_checkpoint_naming,
        "number the checkpoints of project_dir");
  field("total_limit", project_config.total_limit, "how many of those are kept; 0: all");
  field("save_on_each_node", project_config.save_on_each_node,
        "checkpoints are written on each machine, where they share no file system");
  field("step_scheduler_with_optimizer", step_scheduler_with_optimizer,
        "schedules move with the optimizer's steps");
  field("cpu", cpu, "use the CPU even where there is a GPU");
  field("accelerator", accelerator, "auto, cpu, gpu, tpu or xla");
  field("strategy", strategy,
        "how parameters are kept over devices: auto, single, ddp, fsdp, zero or xla");
  field("devices", devices,
        "processes on this machine (of tpu and xla: devices, of a CPU plugin one); 0: as they were "
        "started; -1: one for each GPU; several begin at main again, so that what runs before the "
        "Accelerator runs in each, with an empty stdin");
  field("num_nodes", num_nodes, "machines");
  engine.fields(field);
}

int64_t AcceleratorOptions::accumulation_steps() const {
  const int64_t plugin = gradient_accumulation_plugin.num_steps;
  LEVIN_CHECK(
      plugin == 0 || gradient_accumulation_steps == 1 || plugin == gradient_accumulation_steps,
      "accelerator.accumulate",
      "got gradient_accumulation_steps = {} and a plugin of {}; set one of them",
      gradient_accumulation_steps, plugin);
  return plugin == 0 ? gradient_accumulation_steps : plugin;
}

}  // namespace levin
