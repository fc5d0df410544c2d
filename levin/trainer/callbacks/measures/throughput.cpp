#include "levin/trainer/callbacks/measures/throughput.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::detail {

void Throughput::update(const ThroughputTotals& totals) {
  LEVIN_CHECK(totals.samples >= totals.batches, "trainer.throughput",
              "got {} samples in {} batches, wanted at least one in each batch; let batch_size_fn "
              "return the number of samples of a batch",
              totals.samples, totals.batches);
  LEVIN_CHECK(
      !totals.lengths || *totals.lengths >= totals.samples, "trainer.throughput",
      "got {} items in {} samples, wanted at least one in each sample; let length_fn return "
      "the number of items of all samples of a batch",
      totals.lengths.value_or(0), totals.samples);
  if (!window_.empty()) {
    const ThroughputTotals& last = window_.back();
    const bool grows = totals.time_s > last.time_s && totals.batches > last.batches &&
                       totals.samples > last.samples &&
                       (!totals.lengths || !last.lengths || *totals.lengths > *last.lengths);
    LEVIN_CHECK(grows, "trainer.throughput",
                "got totals that do not grow: {} s, {} batches, {} samples after {} s, {} batches, "
                "{} samples; give a clock that moves, and functions that return at least 1",
                totals.time_s, totals.batches, totals.samples, last.time_s, last.batches,
                last.samples);
  }
  window_.push_back(totals);
  if (static_cast<int64_t>(window_.size()) > settings_.window_size) window_.pop_front();
}

bool Throughput::all_have_lengths() const {
  return std::ranges::all_of(window_, [](const auto& one) { return one.lengths.has_value(); });
}

bool Throughput::all_have_flops() const {
  return std::ranges::all_of(window_, [](const auto& one) { return one.flops.has_value(); });
}

// Names and arithmetic are Lightning's: a rate without "device" is that of all devices, and is
// there only if there are several.
Scalars Throughput::compute() const {
  if (window_.empty()) return {};
  const ThroughputTotals& first = window_.front();
  const ThroughputTotals& last = window_.back();
  Scalars values = {{"time", last.time_s},
                    {"batches", static_cast<double>(last.batches)},
                    {"samples", static_cast<double>(last.samples)}};
  if (last.lengths) values.push_back({"lengths", static_cast<double>(*last.lengths)});
  if (static_cast<int64_t>(window_.size()) < settings_.window_size) return values;

  const double elapsed_s = last.time_s - first.time_s;
  const auto devices = static_cast<double>(settings_.devices);
  const auto processes = static_cast<double>(settings_.processes);
  const bool are_several = devices * processes > 1.0;
  const auto add = [&](const std::string& name, double of_device, double of_process) {
    values.push_back({"device" + settings_.separator + name, of_device});
    if (are_several) values.push_back({name, of_process * processes});
  };
  // Each device takes part in each batch of its process.
  const double batches = static_cast<double>(last.batches - first.batches) / elapsed_s;
  add("batches_per_sec", batches, batches);
  const double samples = static_cast<double>(last.samples - first.samples) / elapsed_s;
  add("samples_per_sec", samples / devices, samples);
  if (all_have_lengths()) {
    const double items = static_cast<double>(*last.lengths - *first.lengths) / elapsed_s;
    add("items_per_sec", items / devices, items);
  }
  if (!all_have_flops()) return values;
  double flops = 0.0;
  for (const ThroughputTotals& one : window_) flops += *one.flops;
  const double flops_per_s = (flops - *first.flops) / elapsed_s;
  add("flops_per_sec", flops_per_s / devices, flops_per_s);
  if (settings_.available_flops && *settings_.available_flops > 0.0) {
    values.push_back({"device" + settings_.separator + "mfu",
                      flops_per_s / devices / *settings_.available_flops});
  }
  return values;
}

}  // namespace levin::detail
