#include "levin/trainer/cli_flags.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options/option_group.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/measures/measures.h"
#include "levin/trainer/run/limits.h"

namespace levin::detail {
namespace {

// Options of callbacks, in the order of their structs. A new option of a callback needs a line here.

void visit_early_stopping(FieldVisitor& field, EarlyStoppingOptions& options) {
  field("monitor", options.monitor, "name of the logged value");
  field("min_delta", options.min_delta, "a smaller change is no improvement");
  field("patience", options.patience, "checks without improvement before the run ends");
  field("verbose", options.verbose, "log the state at each check");
  field("mode", options.mode, "min or max: which value of the monitor is best");
  field("strict", options.strict,
        "error if the monitor was not logged; false: leave that check out");
  field("check_finite", options.check_finite, "end the run on NaN or infinity");
  field("stopping_threshold", options.stopping_threshold,
        "end the run at a better value than this");
  field("divergence_threshold", options.divergence_threshold,
        "end the run at a worse value than this");
  field("check_on_train_epoch_end", options.check_on_train_epoch_end,
        "check at the end of training epochs; false: after validations; none: chosen by the run");
  field("log_rank_zero_only", options.log_rank_zero_only,
        "log on rank 0 only; false: on each rank that writes to the log");
}

std::string as_time(std::chrono::seconds time) {
  const int64_t total = time.count();
  return fmt::format("{:02}:{:02}:{:02}:{:02}", total / 86400, total / 3600 % 24, total / 60 % 60,
                     total % 60);
}

void visit_model_checkpoint(FieldVisitor& field, ModelCheckpointOptions& options) {
  field("dirpath", options.dirpath, "folder of the checkpoints; empty: in the run's log folder");
  field("filename", options.filename, "name of a checkpoint, as {epoch}-{val_loss:.2f}");
  field("monitor", options.monitor,
        "name of the logged value that ranks checkpoints; empty: the newest is best");
  field("save_last", options.save_last, "also keep the newest checkpoint");
  field("save_top_k", options.save_top_k, "number of best checkpoints to keep; -1: all");
  field("save_on_exception", options.save_on_exception, "save when an exception ends the run");
  field("save_weights_only", options.save_weights_only,
        "save weights without the training state; no run can resume from them");
  field("verbose", options.verbose, "log each save with its value");
  field("auto_insert_metric_name", options.auto_insert_metric_name,
        "{name} in filename becomes name=value; false: the value alone");
  field("load_best_at_end", options.load_best_at_end,
        "give the module the weights of the best checkpoint when a fit ends");
  field("mode", options.mode, "min or max: which value of the monitor is best");
  field("every_n_train_steps", options.every_n_train_steps,
        "optimizer steps between two saves; 0: not by steps");
  auto& interval = options.train_time_interval;
  field.take({.name = "train_time_interval",
              .help = "time between two saves, DD:HH:MM:SS; none: not by time",
              .get = [&interval] { return interval ? as_time(*interval) : "none"; },
              .set =
                  [&interval](std::string_view text) {
                    interval.reset();
                    if (text == "none") return;
                    const auto seconds =
                        parse_duration(std::string(text), "model_checkpoint.train_time_interval");
                    if (seconds) interval = std::chrono::seconds(static_cast<int64_t>(*seconds));
                  }});
  field("every_n_epochs", options.every_n_epochs, "epochs between two saves; 0: not by epochs");
  field("save_on_train_epoch_end", options.save_on_train_epoch_end,
        "save at the end of training epochs; false: after validations; none: chosen by the run");
  field("async_save", options.async_save, "write in the background");
  field("save_on_each_node", options.save_on_each_node,
        "each machine writes the state of its own processes");
  field("enable_version_counter", options.enable_version_counter,
        "append -v1, -v2 to a name that is taken; false: replace that checkpoint");
}

void visit_timer(FieldVisitor& field, TimerOptions& options) {
  field("duration", options.duration, "most time of training, DD:HH:MM:SS; empty: only measure");
  field("interval", options.interval, "step or epoch: the run ends after one of these");
  field("verbose", options.verbose, "log that the run ends");
}

void visit_stochastic_weight_averaging(FieldVisitor& field,
                                       StochasticWeightAveragingOptions& options) {
  field("swa_lrs", options.swa_lrs, "final learning rates: one for all groups, or one for each");
  field("swa_epoch_start", options.swa_epoch_start,
        "epoch of the start, from 1, or its fraction of max_epochs");
  field("annealing_epochs", options.annealing_epochs, "epochs from the rates to swa_lrs");
  field("annealing_strategy", options.annealing_strategy, "cos or linear");
}

void visit_finetuning(FieldVisitor& field, FinetuningOptions& options) {
  field("pattern", options.pattern, "pattern of the names of the parameters to freeze");
  field("unfreeze_at_epoch", options.unfreeze_at_epoch, "first epoch that trains them");
  field("backbone_initial_ratio_lr", options.backbone_initial_ratio_lr,
        "their first rate, relative to the first group's");
  field("backbone_initial_lr", options.backbone_initial_lr, "their first rate itself");
  field("should_align", options.should_align,
        "their rate stays at the first group's once it is larger");
  field("train_bn", options.train_bn, "false: parameters of batch norm layers stay frozen");
  field("verbose", options.verbose, "log both rates in each epoch");
}

void visit_throughput_monitor(FieldVisitor& field, ThroughputMonitorOptions& options) {
  field("window_size", options.window_size, "batches of the sliding window");
  field("separator", options.separator, "text between the parts of a name");
  field("available_flops", options.available_flops,
        "peak FLOP/s of a device; none: by the device's name");
  field("flops_per_batch", options.flops_per_batch, "FLOPs of a batch; none: they are counted");
  field("synchronize", options.synchronize, "wait for the device after each batch");
}

void visit_device_stats_monitor(FieldVisitor& field, DeviceStatsMonitorOptions& options) {
  field("cpu_stats", options.cpu_stats, "log the CPU's statistics; none: if the run is on the CPU");
}

void visit_gradient_norm_monitor(FieldVisitor& field, GradientNormMonitorOptions& options) {
  field("norm_type", options.norm_type, "p of the p-norm");
  field("by", options.by, "parameter, layer or total");
  field("every_n_steps", options.every_n_steps, "optimizer steps; 0: log_every_n_steps");
}

void visit_weight_averaging(FieldVisitor& field, WeightAveragingOptions& options) {
  field("decay", options.decay,
        "decay of the exponential moving average; none: the mean of all updates");
  field("update_every_n_steps", options.update_every_n_steps,
        "optimizer steps between updates; 0: not by steps");
  field("update_starting_at_step", options.update_starting_at_step,
        "first optimizer step that updates");
  field("update_starting_at_epoch", options.update_starting_at_epoch,
        "also update after each epoch from this one on");
  field("use_buffers", options.use_buffers, "average floating-point buffers too");
}

void visit_learning_rate_monitor(FieldVisitor& field, LearningRateMonitorOptions& options) {
  field("logging_interval", options.logging_interval,
        "step, epoch, or empty: as the optimizer's schedule counts");
  field("log_momentum", options.log_momentum, "also log the momentum");
  field("log_weight_decay", options.log_weight_decay, "also log the weight decay");
  field("log_key_prefix", options.log_key_prefix, "prefix of each name");
}

/// Hands fields on but for those whose name, or section, is taken. Without a taken name, their help is kept.
class Unless : public FieldVisitor {
 public:
  Unless(FieldVisitor& to, const std::set<std::string>& taken, bool hides)
      : to_(to), taken_(taken), hides_(hides) {}

 protected:
  void visit(Field field) override {
    if (taken_.contains(field.name.substr(0, field.name.find('.')))) return;
    if (hides_) field.help.clear();
    to_.take(std::move(field));
  }

 private:
  FieldVisitor& to_;
  const std::set<std::string>& taken_;
  bool hides_;
};

}  // namespace

template <class Options, class Made>
void CallbackFlags::add(std::string name, std::string help, void (*visit)(FieldVisitor&, Options&),
                        std::shared_ptr<Made> (*make)(Options)) {
  struct Visited {
    Options options;
    void (*visit)(FieldVisitor&, Options&);
    void fields(FieldVisitor& field) { visit(field, options); }
  };
  const auto visited = std::make_shared<Visited>(Visited{Options(), visit});
  entries_.push_back(
      {OptionSection(std::move(name)), std::move(help),
       [visited](FieldVisitor& field, OptionSection& section) { section.fields(field, *visited); },
       [visited, make]() -> std::shared_ptr<Callback> { return make(visited->options); }});
}

// A further callback is one more line.
CallbackFlags::CallbackFlags() {
  add("early_stopping", "end the run when a logged value stops improving", visit_early_stopping,
      early_stopping);
  add("model_checkpoint", "save the best and the newest checkpoints", visit_model_checkpoint,
      model_checkpoint);
  add("weight_averaging", "average the weights: EMA or SWA", visit_weight_averaging,
      weight_averaging);
  add("learning_rate_monitor", "log the learning rates", visit_learning_rate_monitor,
      learning_rate_monitor);
  add("stochastic_weight_averaging", "train with SWA learning rates and average the weights",
      visit_stochastic_weight_averaging, stochastic_weight_averaging);
  add("finetuning", "freeze a part of the model, and unfreeze it at an epoch", visit_finetuning,
      finetuning);
  add("timer", "measure the stages of the run, and end it after a time", visit_timer, timer);
  add("throughput_monitor", "log samples a second, FLOP/s and MFU", visit_throughput_monitor,
      throughput_monitor);
  add("device_stats_monitor", "log the memory and the load of the devices",
      visit_device_stats_monitor, device_stats_monitor);
  add("gradient_norm_monitor", "log norms of gradients", visit_gradient_norm_monitor,
      gradient_norm_monitor);
}

void CallbackFlags::fields(FieldVisitor& field) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.section.name());
  field("callbacks", names_, fmt::format("callbacks to add: {}", to_text(names)));
  for (Entry& entry : entries_) {
    field.take({.name = entry.section.name(),
                .help = entry.help + "; one of its options turns it on too",
                .is_switch = true,
                .is_number = true,
                .get = [this, &entry] { return to_text(is_on(entry)); },
                .set = [&entry](std::string_view text) { from_text(text, entry.wanted.emplace()); },
                .is_given = [&entry] { return entry.wanted.has_value(); }});
    entry.fields(field, entry.section);
  }
}

bool CallbackFlags::is_on(const Entry& entry) const {
  const bool is_named = std::ranges::count(names_, entry.section.name()) > 0;
  return entry.wanted.value_or(is_named || entry.section.is_given());
}

void CallbackFlags::add_to(std::vector<std::shared_ptr<Callback>>& callbacks) const {
  std::vector<std::string> known;
  for (const Entry& entry : entries_) known.push_back(entry.section.name());
  for (const std::string& name : names_) {
    const auto close = nearest(name, known);
    LEVIN_CHECK(std::ranges::count(known, name) > 0, "trainer.cli.callback",
                "got '{}' in --callbacks, wanted names of {}{}", printable(name), to_text(known),
                close ? fmt::format("; did you mean {}?", *close) : "");
  }
  for (const Entry& entry : entries_) {
    if (!is_on(entry)) continue;
    std::shared_ptr<Callback> made = entry.make();
    const bool is_there = std::ranges::any_of(callbacks, [&](const auto& callback) {
      const Callback &one = *callback, &other = *made;
      return typeid(one) == typeid(other);
    });
    LEVIN_CHECK(!is_there, "trainer.cli.callback",
                "got options of {}, but the program adds this callback itself; leave the options "
                "out, or remove it from the program",
                entry.section.name());
    callbacks.push_back(std::move(made));
  }
}

CliFlags::CliFlags(const WalkFields& own, bool overrides_optimizer)
    : overrides_optimizer_(overrides_optimizer) {
  for (const auto& [name, value] : options_as_text(own)) {
    taken_.insert(name.substr(0, name.find('.')));
  }
}

void CliFlags::fields(FieldVisitor& field) {
  Unless optimizer(field, taken_, overrides_optimizer_);
  if (!overrides_optimizer_) option_group(field, "optimizer");
  optimizer_.fields(optimizer);
  Unless callbacks(field, taken_, false);
  option_group(field, "callbacks");
  callbacks_.fields(callbacks);
  option_group(field, "");
}

bool CliFlags::chooses_optimizer() const {
  return !optimizer_.name.empty() || !optimizer_.options.empty() ||
         !optimizer_.lr_scheduler.name.empty() || !optimizer_.lr_scheduler.options.empty();
}

void CliFlags::check() const {
  if (!chooses_optimizer()) return;
  LEVIN_CHECK(!overrides_optimizer_, "trainer.cli.optimizer",
              "got an optimizer or a schedule by flag, file or environment, but the module "
              "overrides configure_optimizers, which would not use it; leave it out, or visit a "
              "levin::optim::OptimizerOptions in the module's Options");
  static_cast<void>(optimizer_.config());
}

void CliFlags::give_optimizer(Module& module) const {
  if (chooses_optimizer()) module.use_optimizer(optimizer_.config());
}

}  // namespace levin::detail
