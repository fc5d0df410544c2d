#include "levin/trainer/options.h"

#include <fmt/format.h>

#include "levin/base/check.h"
#include "levin/base/error.h"
#include "levin/base/options/option_group.h"
#include "levin/base/options/option_section.h"
#include "levin/base/options/placed_fields.h"
#include "levin/base/random.h"
#include "levin/observe/named_loggers.h"

namespace levin {

std::string to_text(const Loggers& loggers) {
  return loggers.kinds_.empty() ? to_text(loggers.on()) : to_text(loggers.kinds_);
}

std::string to_text(const Deterministic& value) {
  return value.warns_ ? "warn" : to_text(value.on_);
}

void from_text(std::string_view text, Deterministic& value) {
  value.warns_ = text == "warn";
  if (value.warns_) {
    value.on_ = true;
    return;
  }
  try {
    from_text(text, value.on_);
  } catch (const Error&) {
    LEVIN_FAIL("base.text", "got '{}', wanted true, false or warn", text);
  }
}

void from_text(std::string_view text, Loggers& loggers) {
  std::vector<std::string> kinds;
  try {
    from_text(text, loggers.on_);
  } catch (const Error&) {
    from_text(text, kinds);
    detail::check_logger_names(kinds);
    loggers.on_ = true;
  }
  loggers.kinds_ = std::move(kinds);
  loggers.loggers_.clear();
}

std::vector<std::shared_ptr<Logger>> Loggers::make(const std::string& save_dir) const {
  if (!on_ || !loggers_.empty()) return on_ ? loggers_ : std::vector<std::shared_ptr<Logger>>();
  const std::vector<std::string> kinds =
      kinds_.empty() ? std::vector<std::string>{"csv", "tensorboard"} : kinds_;
  return detail::loggers_named(
      kinds,
      {.save_dir = save_dir_.value_or(save_dir), .name = name_.value_or(""), .version = version_});
}

void Loggers::fields(FieldVisitor& field) {
  field("logger", *this,
        fmt::format("loggers of the run: true for csv,tensorboard, false, or names of {}",
                    to_text(detail::logger_names())));
  optional_field(field, "logger.save_dir", save_dir_,
                 "folder of all runs; by default levin_logs in --default-root-dir");
  optional_field(field, "logger.name", name_, "subfolder of the experiment");
  optional_field(field, "logger.version", version_, "number of the run; by default the next one");
}

void detail::seed_as_told(const TrainerOptions& options) {
  if (options.seed) seed_everything(*options.seed);
}

void TrainerOptions::fields(FieldVisitor& field) {
  PlacedFields shared(engine);
  option_group(field, "devices and processes");
  field("accelerator", accelerator, "kind of device: auto, cpu, gpu, tpu or xla");
  field("strategy", strategy,
        "distributed strategy: auto, single, ddp, fsdp, zero or xla; auto: single for one rank, "
        "ddp for "
        "several, or zero or fsdp if ddp does not fit the memory");
  field("devices", devices,
        "number of processes on this machine; with --accelerator tpu or xla, number of devices; "
        "auto: as many as a launcher "
        "started, else one for each GPU or TPU core, else 1. With N > 1 processes "
        "the program is started N times, from main(): code before the Trainer runs in each of "
        "them, with an empty stdin");
  field("num_nodes", num_nodes, "number of machines");
  field("tpu_cores", tpu_cores, "same as --accelerator tpu --devices N; 0: unset");
  shared.hand_on(field, {"pjrt_plugin"});
  field("precision", precision,
        "precision: 32-true, 64-true, bf16-true, 16-true, bf16-mixed or 16-mixed");
  shared.hand_on(field, {"max_memory_gb", "dp_*", "tp_size", "cp_size", "sp_size"});
  shared.hand_on(field, {"master_weights"});
  shared.hand_on(field, {"sync_batchnorm"});
  option_group(field, "length of the run");
  field("max_epochs", max_epochs,
        "maximum number of epochs; -1: no limit; none (not set): 1000, or no limit if max_steps or "
        "max_time is set");
  field("min_epochs", min_epochs, "minimum number of epochs");
  field("max_steps", max_steps, "maximum number of optimizer steps; -1: no limit");
  field("min_steps", min_steps, "minimum number of optimizer steps");
  field("max_time", max_time, "maximum training time, DD:HH:MM:SS; empty: no limit");
  field("limit_train_batches", limit_train_batches,
        "training batches per epoch: a count, or a fraction with a decimal point");
  field("limit_val_batches", limit_val_batches, "validation batches: a count or a fraction");
  field("limit_test_batches", limit_test_batches, "test batches: a count or a fraction");
  field("limit_predict_batches", limit_predict_batches,
        "prediction batches: a count or a fraction");
  field("overfit_batches", overfit_batches,
        "train and validate on these batches only, without shuffling: a count or a fraction; "
        "0.0: off");
  field("fast_dev_run", fast_dev_run, "run only N batches of each loop and write nothing; 0: off");
  option_group(field, "validation");
  field("val_check_interval", val_check_interval,
        "validate after every N batches, after this fraction of an epoch, or after this time, "
        "DD:HH:MM:SS");
  field("check_val_every_n_epoch", check_val_every_n_epoch,
        "validate every N epochs; none: val_check_interval counts batches across epochs");
  field("num_sanity_val_steps", num_sanity_val_steps,
        "validation batches to run before training; -1: all");
  field("inference_mode", inference_mode,
        "evaluate in inference mode; false: evaluate under no_grad");
  option_group(field, "optimization");
  field(
      "accumulate_grad_batches", accumulate_grad_batches,
      "gradient accumulation: batches per optimizer step; auto: one, and a batch that does not fit "
      "into memory is cut into parts");
  field("accumulate_grad_batches_by_epoch", accumulate_grad_batches_by_epoch,
        "gradient accumulation by epoch: 0:8,4:1 means 8 batches per optimizer step, and 1 from "
        "epoch 4 on; none: --accumulate-grad-batches");
  shared.hand_on(field, {"train_batch_size"});
  field("gradient_clip_val", gradient_clip_val,
        "clip gradients to this norm, or to this value (see --gradient-clip-algorithm)");
  field("gradient_clip_algorithm", gradient_clip_algorithm, "how to clip gradients: norm or value");
  option_group(field, "logs and checkpoints");
  logger.fields(field);
  field("log_every_n_steps", log_every_n_steps, "log every N steps");
  field("enable_checkpointing", enable_checkpointing, "write checkpoints");
  field("enable_progress_bar", enable_progress_bar, "show the progress bar");
  field("enable_model_summary", enable_model_summary, "print the table of layers");
  field("default_root_dir", default_root_dir,
        "folder in which levin_logs, with logs and checkpoints, is made");
  field("ckpt_path", ckpt_path, "checkpoint to resume from: a folder, or 'last' for the newest");
  field("resume_in_place", resume_in_place,
        "continue a resumed run in its own log folder and remove log rows that are later than the "
        "checkpoint; false: start a new folder");
  field("exit_on_signal", exit_on_signal,
        "on SIGTERM or SIGINT, save a checkpoint and exit with 143 or 130");
  field("profiler", profiler,
        "profile the run: simple (the time of each hook and action) or pytorch (a trace of "
        "operators); empty: off");
  field("barebones", barebones,
        "disable logs, checkpoints, progress bar and summary, to measure overhead");
  option_group(field, "random numbers and algorithms");
  field("seed", seed, "seed of all random generators, set when the options are read");
  field("deterministic", deterministic,
        "use deterministic algorithms only; warn: warn where an operator has none, instead of an "
        "error");
  field("benchmark", benchmark, "let cuDNN measure its algorithms and use the fastest");
  field("detect_anomaly", detect_anomaly, "name the operator that produced a NaN gradient (slow)");
  option_group(field, "data loading");
  shared.hand_on(field, {"use_distributed_sampler"});
  field("reload_dataloaders_every_n_epochs", reload_dataloaders_every_n_epochs,
        "ask the data module, or the module, for new loaders every N epochs; 0: never");
  field("dispatch_batches", dispatch_batches,
        "only rank 0 reads the data and sends the batches to the other ranks");
  field("even_batches", even_batches,
        "give all ranks the same number of training batches: the first samples repeat if their "
        "number does not divide; false: read each sample once, and train on uneven inputs (join)");
  option_group(field, "NaN losses and loss scaling");
  shared.hand_on(field, {"scaler_*", "nan_policy", "spike_*", "max_rollbacks"});
  option_group(field, "compilation");
  shared.hand_on(field, {"compile*", "activation_memory_budget"});
  option_group(field, "offload");
  shared.hand_on(field, {"offload*"});
  option_group(field, "communication");
  shared.hand_on(field, {"backend", "comm_*"});
  option_group(field, "strategy ddp");
  shared.hand_on(field, {"ddp_*"});
  option_group(field, "strategies fsdp and zero");
  shared.hand_on(field, {"mesh", "fsdp_*", "zero_stage"});
  option_group(field, "");
  shared.hand_on(field, {"*"});
}

}  // namespace levin
