#pragma once
// Callbacks that measure a run: throughput and MFU, statistics of the device, norms of gradients.
//
//   options.callbacks = {levin::throughput_monitor({.length_fn = tokens}),
//                        levin::device_stats_monitor(), levin::gradient_norm_monitor()};

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/module/module.h"

namespace levin {

/// Options of throughput_monitor.
struct ThroughputMonitorOptions {
  std::function<int64_t(const Batch&)> batch_size_fn = {};  ///< samples; empty: Batch::size()
  /// Items (tokens) of all samples of a batch; empty: they are not counted.
  std::function<int64_t(const Batch&)> length_fn = {};
  int64_t window_size = 100;                   ///< batches of the sliding window
  std::string separator = "/";                 ///< text between the parts of a name
  std::optional<double> available_flops = {};  ///< peak FLOP/s of a device; unset: by its name
  std::optional<double> flops_per_batch = {};  ///< of each batch; unset: they are counted
  bool synchronize = true;                     ///< wait for the device after each batch
  std::function<double()> clock = {};          ///< seconds; empty: a steady clock
};
/// Returns a callback that logs what lightning.pytorch.callbacks.ThroughputMonitor logs, under its
/// names: "train/time", "train/device/batches_per_sec", "train/device/flops_per_sec",
/// "train/device/mfu" and so on; with several devices also the rates of all ("train/mfu" is not
/// one of them). Rates need a full window. Training logs every log_every_n_steps; an evaluation at
/// its end. FLOPs are those of matrix products, convolutions and attention in forward and backward,
/// counted in the first batch of each shape while it runs. Throws Error "trainer.throughput" for
/// options out of range, and for functions that return less than 1.
LEVIN_API std::shared_ptr<Callback> throughput_monitor(ThroughputMonitorOptions options = {});

/// Options of device_stats_monitor.
struct DeviceStatsMonitorOptions {
  std::optional<bool> cpu_stats = {};  ///< log the CPU's statistics; unset: if it is the device
};
/// Returns a callback that follows lightning.pytorch.callbacks.DeviceStatsMonitor. Names begin with
/// the hook: "DeviceStatsMonitor.on_train_batch_start/cpu_percent". CPU: utilization, memory and
/// swap of the machine in percent, bytes available, and resident (RSS) and proportional (PSS) bytes
/// of the process. GPU: the caching allocator's statistics, as torch.cuda.memory_stats. Throws
/// Error "trainer.device_stats_monitor" if a fit has no logger.
LEVIN_API std::shared_ptr<Callback> device_stats_monitor(DeviceStatsMonitorOptions options = {});

/// Options of gradient_norm_monitor.
struct GradientNormMonitorOptions {
  double norm_type = 2.0;        ///< p of the p-norm, above 0; may be infinity
  std::string by = "parameter";  ///< parameter, layer or total, as optim::GradNormOptions::by
  int64_t every_n_steps = 0;     ///< optimizer steps; 0: log_every_n_steps
};
/// Returns a callback that logs optim::grad_norm before the optimizer's step: gradients of the
/// whole accumulation window, reduced over ranks and unscaled, but not clipped yet. Under fsdp and
/// zero the norms are those of full gradients. Throws Error "optim.grad_norm" for options out of
/// range.
LEVIN_API std::shared_ptr<Callback> gradient_norm_monitor(GradientNormMonitorOptions options = {});

}  // namespace levin
