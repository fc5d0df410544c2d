// The search for a batch size; follows lightning/pytorch/tuner/batch_size_scaling.py.

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/accelerator/engine/host_memory.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/run/memory_left.h"
#include "levin/trainer/tuner/batch_size_search.h"
#include "levin/trainer/tuner/trial.h"

namespace levin::detail {
namespace {

constexpr const char* kId = "trainer.scale_batch_size";

/// Samples of the training data that one rank reads.
int64_t samples_of(const DataLoader& loader, int64_t ranks) {
  LEVIN_CHECK(loader.dataset() != nullptr, kId,
              "got the loader of a stream, whose batch size the finder cannot change; set it by "
              "hand, or use a dataset that is read by index");
  const int64_t samples = loader.state_dict().integer("size");
  LEVIN_CHECK(samples > 0, kId, "the training data has no sample; give it at least one");
  return std::max<int64_t>(1, samples / ranks);
}

void check_run(const Trainer& trainer, Engine& engine) {
  LEVIN_CHECK(engine.xla() == nullptr, kId,
              "the batch-size finder does not know the memory of XLA devices; `levin plan` "
              "estimates the memory of a step");
  if (engine.num_processes() == 1) return;
  const std::string_view strategy = engine.strategy().name();
  LEVIN_CHECK(strategy == "ddp", kId,
              "got strategy '{}' with {} processes, whose steps exchange parameters: a process "
              "that ran out of memory would leave the others waiting; use ddp, or set the batch "
              "size by hand",
              strategy, engine.num_processes());
  LEVIN_CHECK(!trainer.options().dispatch_batches, kId,
              "got dispatch_batches = true with {} processes, which then wait for each other's "
              "batches; set it to false for the search",
              engine.num_processes());
}

/// Tries sizes, and looks before each one whether the memory will do.
class SizeTrials {
 public:
  SizeTrials(Trainer& trainer, const Tuned& tuned, int64_t steps)
      : trainer_(trainer),
        tuned_(tuned),
        steps_(steps),
        engine_(engine_of(trainer.accelerator())),
        forecast_(resident_bytes()) {}

  bool fits(int64_t size) {
    free_memory();
    if (const std::string reason = agreed_reason(size); !reason.empty()) {
      log::info("trainer: a batch size of {} is not tried: {}", size, reason);
      return false;
    }
    reset_peak_bytes();
    Tuned resized = tuned_;
    resized.loader = with_batch_size(tuned_.loader, size);
    const bool fits = Trial::run(trainer_, resized, {.max_steps = steps_, .tries_memory = true});
    if (fits) forecast_.note(size, peak_bytes());
    log::info("trainer: a batch size of {} {}", size, fits ? "fits" : "does not fit");
    return fits;
  }

 private:
  void free_memory() const {
    return_freed_memory();
    const at::Device device = engine_.device();
    if (device.is_cuda()) at::getDeviceAllocator(device.type())->emptyCache();
  }

  /// Returns why the size will not fit on this rank; empty: it may.
  std::string reason(int64_t size) const {
    const std::optional<int64_t> peak = forecast_.peak_of(size);
    if (!engine_.device().is_cpu() || !peak) return "";
    const int64_t more = *peak - resident_bytes();
    const int64_t ranks_here = engine_.rank().local_world_size;  // they share what can kill
    for (const MemoryLimit& limit : memory_limits()) {
      // An allocation that fails is seen when it is tried. Of the rest something is for others.
      const double share = limit.kills ? 0.9 / static_cast<double>(ranks_here) : 1.25;
      if (static_cast<double>(more) <= share * static_cast<double>(limit.left)) continue;
      return fmt::format("it needs about {} MB more, and {} has {} MB left", more >> 20, limit.of,
                         limit.left >> 20);
    }
    return "";
  }

  std::string agreed_reason(int64_t size) const {
    std::string own = reason(size);
    if (!engine_.world().any(!own.empty())) return "";
    return own.empty() ? "another process lacks memory" : own;
  }

  Trainer& trainer_;
  const Tuned& tuned_;
  int64_t steps_;
  Engine& engine_;
  PeakForecast forecast_;
};

}  // namespace

void check_options(const ScaleBatchSizeOptions& options) {
  LEVIN_CHECK(options.mode == "power" || options.mode == "binsearch", kId,
              "got mode = '{}', wanted power or binsearch", options.mode);
  for (const auto& [name, value] :
       {std::pair("steps_per_trial", options.steps_per_trial),
        std::pair("init_val", options.init_val), std::pair("max_trials", options.max_trials),
        std::pair("max_val", options.max_val)}) {
    LEVIN_CHECK(value > 0, kId, "got {} = {}, wanted at least 1", name, value);
  }
  LEVIN_CHECK(options.margin >= 0.0 && options.margin < 1.0, kId,
              "got margin = {}, wanted at least 0 and below 1", options.margin);
}

DataLoader with_batch_size(const DataLoader& loader, int64_t batch_size) {
  DataLoaderOptions options = loader.options();
  options.batch_size = batch_size;
  DataLoader resized(loader.dataset(), std::move(options));
  resized.load_state_dict(loader.state_dict());
  return resized;
}

int64_t find_batch_size(Trainer& trainer, const Tuned& tuned,
                        const ScaleBatchSizeOptions& options) {
  check_options(options);
  Engine& engine = engine_of(trainer.accelerator());
  check_run(trainer, engine);
  const int64_t limit = samples_of(tuned.loader, engine.num_processes());
  const int64_t given = tuned.loader.options().batch_size;
  if (Trial::skips(trainer, "the batch-size finder")) return given;
  SizeTrials trials(trainer, tuned, options.steps_per_trial);
  const int64_t found =
      search_batch_size(options, limit, [&](int64_t size) { return trials.fits(size); });
  log::info("trainer: the batch-size finder has found {}", found);
  if (options.update_attr) options.update_attr(found);
  return found;
}

}  // namespace levin::detail
