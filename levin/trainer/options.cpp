#include "levin/trainer/options.h"

#include "levin/base/check.h"
#include "levin/base/options/option_group.h"
#include "levin/base/random.h"
#include "levin/graph/compile/contract.h"

namespace levin {

std::string to_text(const Loggers& loggers) { return to_text(loggers.on()); }

void from_text(std::string_view text, Loggers& loggers) {
  bool on = true;
  from_text(text, on);
  loggers = on;
}

void detail::seed_as_told(const TrainerOptions& options) {
  if (options.seed) seed_everything(*options.seed);
}

void TrainerOptions::fields(FieldVisitor& field) {
  option_group(field, "devices and processes");
  field("accelerator", accelerator, "auto, cpu, gpu, tpu or xla");
  field("strategy", strategy,
        "how parameters are kept over devices: auto, single, ddp, fsdp, zero or xla");
  field(
      "devices", devices,
      "processes on this machine (of tpu and xla: devices); auto: as a launcher started them, "
      "else one for each GPU, or all TPU cores, of a CPU plugin one; several begin at main again, "
      "so that what runs before the Trainer runs in each, with an empty stdin");
  field("num_nodes", num_nodes, "machines");
  field("tpu_cores", tpu_cores, "short for --accelerator tpu --devices so many; 0: unset");
  field("pjrt_plugin", pjrt_plugin,
        "of --accelerator xla: cpu, cuda, tpu or a plugin's file; empty: what is found");
  field("precision", precision, "32-true, 64-true, bf16-true, 16-true, bf16-mixed or 16-mixed");
  field("master_weights", master_weights, "update parameters of bf16-true and 16-true in float32");
  field("sync_batchnorm", sync_batchnorm, "batch norm over the batches of all processes");
  option_group(field, "length of the run");
  field("max_epochs", max_epochs,
        "epochs to train; -1: no limit; none: 1000 unless max_steps or max_time");
  field("min_epochs", min_epochs, "epochs to train at least");
  field("max_steps", max_steps, "optimizer steps to train; -1: no limit");
  field("min_steps", min_steps, "optimizer steps to train at least");
  field("max_time", max_time, "time to train, DD:HH:MM:SS; empty: no limit");
  field("limit_train_batches", limit_train_batches,
        "batches of an epoch: a count, or a fraction with a point");
  field("limit_val_batches", limit_val_batches, "batches of a validation: a count or a fraction");
  field("limit_test_batches", limit_test_batches, "batches of a test: a count or a fraction");
  field("limit_predict_batches", limit_predict_batches,
        "batches to predict: a count or a fraction");
  field("fast_dev_run", fast_dev_run, "run so many batches of each loop and write nothing; 0: off");
  option_group(field, "validation");
  field("val_check_interval", val_check_interval,
        "validate after so many batches or this fraction of an epoch");
  field("check_val_every_n_epoch", check_val_every_n_epoch, "epochs between validations");
  field("num_sanity_val_steps", num_sanity_val_steps,
        "validation batches before training; -1: all");
  field("inference_mode", inference_mode, "evaluate in inference mode");
  option_group(field, "optimization");
  field("accumulate_grad_batches", accumulate_grad_batches,
        "batches whose gradients make one step");
  field("gradient_clip_val", gradient_clip_val, "largest gradient norm (or value)");
  field("gradient_clip_algorithm", gradient_clip_algorithm, "norm or value");
  option_group(field, "logs and checkpoints");
  field("logger", logger, "write CSV and TensorBoard logs");
  field("log_every_n_steps", log_every_n_steps, "steps between rows of the loggers");
  field("enable_checkpointing", enable_checkpointing, "write checkpoints");
  field("enable_progress_bar", enable_progress_bar, "show progress");
  field("enable_model_summary", enable_model_summary, "print the table of layers");
  field("default_root_dir", default_root_dir, "folder that levin_logs is made in");
  field("ckpt_path", ckpt_path, "resume from this checkpoint folder, or 'last' for the newest");
  field("resume_in_place", resume_in_place,
        "a resumed run goes on in its own folder of logs, without rows from after the checkpoint; "
        "false: in a new one");
  field("exit_on_signal", exit_on_signal, "after SIGTERM or SIGINT save and exit with 143 or 130");
  field("barebones", barebones, "no logging, checkpoints, bar or summary");
  option_group(field, "random numbers and algorithms");
  field("seed", seed, "seed of everything random, from the reading of the options on");
  field("deterministic", deterministic, "deterministic algorithms only");
  field("benchmark", benchmark, "let cuDNN choose its algorithms by trying them");
  field("detect_anomaly", detect_anomaly, "name the operator whose gradient is NaN (slow)");
  option_group(field, "data over processes");
  field("use_distributed_sampler", use_distributed_sampler,
        "ranks read different parts of the data");
  field("dispatch_batches", dispatch_batches,
        "the first process alone reads the data and hands out the batches");
  option_group(field, "losses and gradients that are no numbers");
  scaler.fields(field);
  loss_guard.fields(field);
  option_group(field, "compilation");
  field("compile", compile,
        fmt::format("no, or replay: training steps are recorded, and replayed without a call of "
                    "training_step; XLA devices compile steps in either case. {}",
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
  option_group(field, "communication of processes");
  comm.fields(field);
  option_group(field, "strategy ddp");
  ddp.fields(field);
  option_group(field, "strategies fsdp and zero");
  fsdp.fields(field);
  option_group(field, "");
}

}  // namespace levin
