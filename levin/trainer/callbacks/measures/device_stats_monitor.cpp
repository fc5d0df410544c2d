#include <optional>
#include <string>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/measures/device_stats.h"
#include "levin/trainer/callbacks/measures/measures.h"
#include "levin/trainer/trainer.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

class DeviceStatsMonitor : public Callback {
 public:
  explicit DeviceStatsMonitor(DeviceStatsMonitorOptions options) : options_(options) {}

  std::string state_key() const override { return "device_stats_monitor"; }
  void setup(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_evaluation_batch_start(Trainer& trainer, Module& module, std::string_view stage,
                                 const Batch& batch, int64_t batch_index) override;
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;

 private:
  Scalars read(Trainer& trainer, const std::string& hook);
  void log_evaluation(Trainer& trainer, std::string_view stage, int64_t batch_index,
                      const char* place);

  DeviceStatsMonitorOptions options_;
  detail::CpuStats cpu_;
  int64_t seen_at_ = -1;  // global step before the last step that was logged
};

void DeviceStatsMonitor::setup(Trainer& trainer, Module&, std::string_view stage) {
  seen_at_ = -1;
  LEVIN_CHECK(stage != "fit" || trainer.options().logger.on(), "trainer.device_stats_monitor",
              "got logger = false, but device_stats_monitor writes to loggers; set logger = true, "
              "or leave the callback out");
}

Scalars DeviceStatsMonitor::read(Trainer& trainer, const std::string& hook) {
  const Engine& engine = engine_of(trainer.accelerator());
  Scalars values = detail::memory_stats(engine.device());
  if (engine.xla()) {
    const xla::RuntimeReport report = engine.xla()->report();
    values.push_back({"compilations.xla", static_cast<double>(report.compilations)});
    values.push_back({"executions.xla", static_cast<double>(report.executions)});
    values.push_back({"host_fallbacks.xla", static_cast<double>(report.host_fallbacks)});
  }
  if (options_.cpu_stats.value_or(engine.device().is_cpu())) {
    const Scalars cpu = cpu_.read();
    values.insert(values.end(), cpu.begin(), cpu.end());
  }
  for (Scalar& one : values) one.name = "DeviceStatsMonitor." + hook + "/" + one.name;
  return values;
}

void DeviceStatsMonitor::on_train_batch_start(Trainer& trainer, Module&, const Batch&, int64_t) {
  const int64_t done = trainer.global_step();
  const bool is_logged = (done + 1) % trainer.options().log_every_n_steps == 0;
  if (!is_logged || done == seen_at_) return;  // once for all batches of a window
  seen_at_ = done;
  trainer.log_metrics(read(trainer, "on_train_batch_start"));
}

void DeviceStatsMonitor::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&,
                                            const Batch&, int64_t) {
  if (!trainer.at_step_boundary() || !trainer.should_log()) return;
  trainer.log_metrics(read(trainer, "on_train_batch_end"));
}

void DeviceStatsMonitor::log_evaluation(Trainer& trainer, std::string_view stage,
                                        int64_t batch_index, const char* place) {
  if (trainer.sanity_checking()) return;
  if ((batch_index + 1) % trainer.options().log_every_n_steps != 0) return;
  const std::string name = stage == "validate" ? "validation" : std::string(stage);
  trainer.log_row(read(trainer, "on_" + name + place));
}

void DeviceStatsMonitor::on_evaluation_batch_start(Trainer& trainer, Module&,
                                                   std::string_view stage, const Batch&,
                                                   int64_t batch_index) {
  log_evaluation(trainer, stage, batch_index, "_batch_start");
}

void DeviceStatsMonitor::on_evaluation_batch_end(Trainer& trainer, Module&, std::string_view stage,
                                                 const Batch&, int64_t batch_index) {
  log_evaluation(trainer, stage, batch_index, "_batch_end");
}

}  // namespace

std::shared_ptr<Callback> device_stats_monitor(DeviceStatsMonitorOptions options) {
  return std::make_shared<DeviceStatsMonitor>(options);
}

}  // namespace levin
