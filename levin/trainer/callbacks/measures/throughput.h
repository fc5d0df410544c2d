#pragma once
// Throughput: rates over a sliding window of batches, as lightning.fabric.utilities.throughput's
// class of that name. ThroughputMonitor feeds it.
//
//   Throughput throughput({.window_size = 100});
//   throughput.update({.time_s = 1.5, .batches = 3, .samples = 96});
//   const Scalars now = throughput.compute();
// Not for users.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/observe/logger.h"

namespace levin::detail {

struct ThroughputSettings {
  std::optional<double> available_flops = {};  ///< peak FLOP/s of one device
  int64_t processes = 1;                       ///< each sees as many batches
  int64_t devices = 1;                         ///< of each process, which share its batches
  int64_t window_size = 100;                   ///< batches
  std::string separator = "/";
};

/// Totals of a process since the start.
struct ThroughputTotals {
  double time_s = 0.0;
  int64_t batches = 0;
  int64_t samples = 0;
  std::optional<int64_t> lengths = {};  ///< items (tokens)
  std::optional<double> flops = {};     ///< of the last batch alone
};

class LEVIN_API Throughput {
 public:
  explicit Throughput(ThroughputSettings settings) : settings_(std::move(settings)) {}

  /// Throws Error "trainer.throughput" for totals that do not increase, and for more batches than
  /// samples or more samples than items.
  void update(const ThroughputTotals& totals);
  /// Returns time, batches, samples and lengths, and the rates once the window is full.
  Scalars compute() const;
  void reset() { window_.clear(); }
  bool empty() const { return window_.empty(); }
  double last_time_s() const { return window_.empty() ? 0.0 : window_.back().time_s; }

 private:
  bool all_have_lengths() const;
  bool all_have_flops() const;

  ThroughputSettings settings_;
  std::deque<ThroughputTotals> window_;
};

}  // namespace levin::detail
