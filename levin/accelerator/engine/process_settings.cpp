#include "levin/accelerator/engine/process_settings.h"

#include <ATen/Context.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "levin/accelerator/engine/host_memory.h"

namespace levin::detail {
namespace {

struct Deterministic {
  bool on = false;
  bool warns_only = false;
};

/// The values of the flags before an engine changed them.
struct Engines {
  std::mutex mutex;
  int64_t count = 0;
  std::optional<Deterministic> deterministic;
  std::optional<bool> benchmark;
  std::optional<bool> onednn;
};

Engines& engines() {
  static auto* all = new Engines;  // an engine may be a static of the program
  return *all;
}

void put_back(Engines& all) {
  at::Context& context = at::globalContext();
  if (all.deterministic) {
    context.setDeterministicAlgorithms(all.deterministic->on, all.deterministic->warns_only);
  }
  if (all.benchmark) context.setBenchmarkCuDNN(*all.benchmark);
  if (all.onednn) context.setUserEnabledMkldnn(*all.onednn);
  all.deterministic.reset();
  all.benchmark.reset();
  all.onednn.reset();
}

}  // namespace

ProcessSettings::ProcessSettings() {
  Engines& all = engines();
  const std::lock_guard lock(all.mutex);
  ++all.count;
}

ProcessSettings::~ProcessSettings() {
  Engines& all = engines();
  const std::lock_guard lock(all.mutex);
  if (--all.count > 0) return;
  put_back(all);
  restore_freed_memory();
}

void ProcessSettings::use_deterministic_algorithms(bool warns) {
  at::Context& context = at::globalContext();
  Engines& all = engines();
  const std::lock_guard lock(all.mutex);
  if (!all.deterministic) {
    all.deterministic = {context.deterministicAlgorithms(),
                         context.deterministicAlgorithmsWarnOnly()};
  }
  context.setDeterministicAlgorithms(true, /*warn_only=*/warns);
}

void ProcessSettings::use_cudnn_benchmark() {
  Engines& all = engines();
  const std::lock_guard lock(all.mutex);
  if (!all.benchmark) all.benchmark = at::globalContext().benchmarkCuDNN();
  at::globalContext().setBenchmarkCuDNN(true);
}

void ProcessSettings::use_no_onednn() {
  Engines& all = engines();
  const std::lock_guard lock(all.mutex);
  if (!all.onednn) all.onednn = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(false);
}

}  // namespace levin::detail
