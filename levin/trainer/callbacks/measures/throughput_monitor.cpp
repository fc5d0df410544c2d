#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/cost/flops.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/measures/available_flops.h"
#include "levin/trainer/callbacks/measures/measures.h"
#include "levin/trainer/callbacks/measures/throughput.h"
#include "levin/trainer/trainer.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

using detail::Throughput;
using detail::ThroughputTotals;

class ThroughputMonitor : public Callback {
 public:
  /// Throws Error "trainer.throughput" for options out of range.
  explicit ThroughputMonitor(ThroughputMonitorOptions options);

  std::string state_key() const override { return "throughput_monitor"; }
  void setup(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_start(Trainer& trainer, Module& module) override { start("train"); }
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;
  void on_after_backward(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_evaluation_batch_start(Trainer& trainer, Module& module, std::string_view stage,
                                 const Batch& batch, int64_t batch_index) override;
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override {
    counter_.reset();
  }
  void teardown(Trainer& trainer, Module& module, std::string_view stage) override {
    counter_.reset();
  }

 private:
  struct Measured {
    explicit Measured(detail::ThroughputSettings settings) : rates(std::move(settings)) {}
    Throughput rates;
    ThroughputTotals totals;
    double t0_s = 0.0;
  };

  double now_s() const;
  Measured& of(std::string_view stage);
  void start(std::string_view stage);
  void begin_batch(std::string_view stage, const Batch& batch);
  void update(Trainer& trainer, std::string_view stage, const Batch& batch);
  std::optional<double> flops_of(std::string_view stage, const Batch& batch);
  Scalars named(Trainer& trainer, std::string_view stage);
  void wait_for_device(Trainer& trainer) const;
  std::optional<double> find_available_flops(Trainer& trainer) const;

  ThroughputMonitorOptions options_;
  detail::ThroughputSettings settings_;
  std::map<std::string, Measured, std::less<>> stages_;
  std::map<std::string, double> flops_;  // of a batch, by stage and shapes
  std::unique_ptr<graph::FlopCounter> counter_;
  bool is_whole_step_ = false;  // backward has run since the counter began
  bool is_in_fit_ = false;
  bool told_of_peak_ = false;
};

ThroughputMonitor::ThroughputMonitor(ThroughputMonitorOptions options)
    : options_(std::move(options)) {
  LEVIN_CHECK(options_.window_size > 1, "trainer.throughput",
              "got window_size = {}, wanted at least 2: a rate is between two batches",
              options_.window_size);
  LEVIN_CHECK(!options_.available_flops || *options_.available_flops > 0.0, "trainer.throughput",
              "got available_flops = {}, wanted a number above 0",
              options_.available_flops.value_or(0.0));
}

at::ScalarType compute_dtype(const std::string& precision) {
  if (precision.starts_with("bf16")) return at::kBFloat16;
  if (precision.starts_with("16")) return at::kHalf;
  return precision.starts_with("64") ? at::kDouble : at::kFloat;
}

std::optional<double> ThroughputMonitor::find_available_flops(Trainer& trainer) const {
  if (options_.available_flops) return options_.available_flops;
  const Engine& engine = engine_of(trainer.accelerator());
  const auto capability = compute_capability(engine.device());
  const bool in_tf32 =
      capability && capability->first >= 8 && at::globalContext().allowTF32CuBLAS();
  return detail::available_flops(detail::device_name(engine),
                                 compute_dtype(trainer.options().precision), in_tf32);
}

void ThroughputMonitor::setup(Trainer& trainer, Module&, std::string_view stage) {
  const Engine& engine = engine_of(trainer.accelerator());
  settings_ = {.available_flops = find_available_flops(trainer),
               .processes = engine.rank().world_size,
               .devices = engine.xla() ? engine.xla()->num_devices() : 1,
               .window_size = options_.window_size,
               .separator = options_.separator};
  is_in_fit_ = stage == "fit";
  stages_.clear();
  flops_.clear();
  if (settings_.available_flops || std::exchange(told_of_peak_, true)) return;
  if (!trainer.accelerator().is_main_process()) return;
  const std::string name = detail::device_name(engine);
  log::info(
      "throughput_monitor: the peak FLOP/s of '{}' in {} is not known, so mfu is not logged; set "
      "available_flops",
      name.empty() ? engine.device().str() : name, trainer.options().precision);
}

double ThroughputMonitor::now_s() const {
  if (options_.clock) return options_.clock();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

ThroughputMonitor::Measured& ThroughputMonitor::of(std::string_view stage) {
  auto place = stages_.find(stage);
  if (place == stages_.end()) place = stages_.emplace(std::string(stage), settings_).first;
  return place->second;
}

void ThroughputMonitor::start(std::string_view stage) {
  Measured& measured = of(stage);
  measured.rates.reset();
  measured.totals = {};
  measured.t0_s = now_s();
}

std::string key_of(std::string_view stage, const Batch& batch) {
  std::string key(stage);
  for (const auto& [name, tensor] : batch) {
    key += ';';
    for (const int64_t size : tensor.sizes()) key += std::to_string(size) + ",";
  }
  return key;
}

void ThroughputMonitor::begin_batch(std::string_view stage, const Batch& batch) {
  counter_.reset();
  is_whole_step_ = false;
  if (options_.flops_per_batch || flops_.contains(key_of(stage, batch))) return;
  counter_ = std::make_unique<graph::FlopCounter>();
}

/// Counts the first batch of each shape. A step that is replayed calls no operators.
std::optional<double> ThroughputMonitor::flops_of(std::string_view stage, const Batch& batch) {
  if (options_.flops_per_batch) return options_.flops_per_batch;
  const std::string key = key_of(stage, batch);
  if (counter_ == nullptr) {
    const auto known = flops_.find(key);
    return known == flops_.end() ? std::nullopt : std::optional(known->second);
  }
  counter_->stop();
  const std::optional<double> counted = counter_->flops();
  counter_.reset();
  if (!counted || *counted == 0.0) return std::nullopt;
  // A batch without backward (an undefined loss) tells nothing of others of its shape.
  if (stage != "train" || is_whole_step_) flops_[key] = *counted;
  return counted;
}

void ThroughputMonitor::wait_for_device(Trainer& trainer) const {
  if (!options_.synchronize) return;
  const Engine& engine = engine_of(trainer.accelerator());
  if (engine.xla()) return engine.xla()->wait();
  if (!engine.device().is_cuda()) return;
  c10::impl::VirtualGuardImpl(engine.device().type()).synchronizeDevice(engine.device().index());
}

void ThroughputMonitor::update(Trainer& trainer, std::string_view stage, const Batch& batch) {
  const std::optional<double> flops = flops_of(stage, batch);
  wait_for_device(trainer);
  Measured& measured = of(stage);
  ThroughputTotals& totals = measured.totals;
  totals.time_s = now_s() - measured.t0_s;
  const at::NoGradGuard no_grad;
  // A rank of uneven inputs may have no batch.
  const bool counts = options_.batch_size_fn && !batch.empty();
  totals.samples += counts ? options_.batch_size_fn(batch) : batch.size();
  if (options_.length_fn) {
    totals.lengths = totals.lengths.value_or(0) + (batch.empty() ? 0 : options_.length_fn(batch));
  }
  ++totals.batches;
  totals.flops = flops;
  measured.rates.update(totals);
}

/// Returns rank 0's values on all ranks, since callbacks may monitor them.
Scalars ThroughputMonitor::named(Trainer& trainer, std::string_view stage) {
  Scalars values = of(stage).rates.compute();
  for (Scalar& one : values) one.name = std::string(stage) + options_.separator + one.name;
  Engine& engine = engine_of(trainer.accelerator());
  if (engine.rank().world_size == 1) return values;
  State own;
  for (const Scalar& one : values) own.set(one.name, one.value);
  const State of_rank_0 = engine.broadcast_object(own);
  values.clear();
  for (const auto& [name, value] : of_rank_0.values()) {
    values.push_back({name, of_rank_0.number(name)});
  }
  return values;
}

void ThroughputMonitor::on_train_batch_start(Trainer&, Module&, const Batch& batch, int64_t) {
  begin_batch("train", batch);
}

// Optimizers that multiply matrices (Muon) are no part of a model's FLOPs.
void ThroughputMonitor::on_after_backward(Trainer&, Module& module) {
  is_whole_step_ = true;
  if (counter_ && module.automatic_optimization) counter_->stop();
}

// A row is written when an accumulation window is complete: its rates include the optimizer's step.
void ThroughputMonitor::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&,
                                           const Batch& batch, int64_t) {
  if (!stages_.contains("train")) start("train");
  update(trainer, "train", batch);
  const bool is_logged = trainer.global_step() % trainer.options().log_every_n_steps == 0;
  if (trainer.at_step_boundary() && is_logged) trainer.log_metrics(named(trainer, "train"));
}

void ThroughputMonitor::on_evaluation_start(Trainer& trainer, Module&, std::string_view stage) {
  if (trainer.sanity_checking()) return;
  start(stage);
}

void ThroughputMonitor::on_evaluation_batch_start(Trainer& trainer, Module&, std::string_view stage,
                                                  const Batch& batch, int64_t) {
  if (!trainer.sanity_checking()) begin_batch(stage, batch);
}

void ThroughputMonitor::on_evaluation_batch_end(Trainer& trainer, Module&, std::string_view stage,
                                                const Batch& batch, int64_t) {
  if (!trainer.sanity_checking()) update(trainer, stage, batch);
}

// The time of a validation does not count as training time.
void ThroughputMonitor::on_evaluation_end(Trainer& trainer, Module&, std::string_view stage) {
  if (trainer.sanity_checking()) return;
  const Scalars values = named(trainer, stage);
  if (!values.empty()) trainer.log_row(values);
  const auto training = stages_.find("train");
  if (!is_in_fit_ || training == stages_.end()) return;
  Measured& train = training->second;
  const double training_ended_s = train.t0_s + train.rates.last_time_s();
  const Measured& evaluated = of(stage);
  train.t0_s += evaluated.t0_s - training_ended_s + evaluated.rates.last_time_s();
}

}  // namespace

std::shared_ptr<Callback> throughput_monitor(ThroughputMonitorOptions options) {
  return std::make_shared<ThroughputMonitor>(std::move(options));
}

}  // namespace levin
