#include "levin/trainer/options.h"

#include "levin/base/options/option_group.h"
#include "levin/base/options/placed_fields.h"
#include "levin/base/random.h"

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
  PlacedFields shared(engine);
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
  shared.hand_on(field, {"pjrt_plugin"});
  field("precision", precision, "32-true, 64-true, bf16-true, 16-true, bf16-mixed or 16-mixed");
  shared.hand_on(field, {"master_weights"});
  shared.hand_on(field, {"sync_batchnorm"});
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
  shared.hand_on(field, {"use_distributed_sampler"});
  field("dispatch_batches", dispatch_batches,
        "the first process alone reads the data and hands out the batches");
  option_group(field, "losses and gradients that are no numbers");
  shared.hand_on(field, {"scaler_*", "nan_policy", "spike_*"});
  option_group(field, "compilation");
  shared.hand_on(field, {"compile*", "activation_memory_budget"});
  option_group(field, "communication of processes");
  shared.hand_on(field, {"backend", "comm_*"});
  option_group(field, "strategy ddp");
  shared.hand_on(field, {"ddp_*"});
  option_group(field, "strategies fsdp and zero");
  shared.hand_on(field, {"fsdp_*", "zero_stage"});
  option_group(field, "");
  shared.hand_on(field, {"*"});
}

}  // namespace levin
