#include "levin/trainer/tuner/batch_size_search.h"

#include <algorithm>
#include <optional>

#include "levin/base/check.h"

namespace levin::detail {
namespace {

using Fits = std::function<bool(int64_t)>;

void check_can_shrink(int64_t size) {
  LEVIN_CHECK(size > 1, "trainer.scale_batch_size",
              "a step with 1 sample does not fit into memory; use a smaller model, bf16-mixed or "
              "levin::activation_checkpoint");
}

/// A size that has failed before any has succeeded is halved, and then doubled again.
int64_t by_power(const ScaleBatchSizeOptions& options, int64_t limit, const Fits& fits) {
  int64_t size = std::min(options.init_val, limit);
  int64_t best = 0;
  for (int64_t trial = 1; trial <= options.max_trials; ++trial) {
    if (fits(size)) {
      best = size;
      if (size == limit) break;
      size = std::min(2 * size, limit);
    } else {
      if (best > 0) break;
      check_can_shrink(size);
      size /= 2;
    }
  }
  LEVIN_CHECK(best > 0, "trainer.scale_batch_size",
              "none of {} batch sizes from {} down fits into memory; lower init_val, or raise "
              "max_trials",
              options.max_trials, options.init_val);
  return best;
}

int64_t by_bisection(const ScaleBatchSizeOptions& options, int64_t limit, const Fits& fits) {
  int64_t size = std::min(options.init_val, limit);
  int64_t best = 0;
  int64_t low = 1;
  std::optional<int64_t> high;
  for (int64_t count = 0; count < options.max_trials;) {
    if (fits(size)) {
      best = low = size;
      ++count;
      if (high ? *high - low <= 1 : size == limit) break;
      size = high ? (*high + low) / 2 : std::min(2 * size, limit);
    } else {
      check_can_shrink(size);
      high = size;
      size = (*high + low) / 2;
      if (*high - low <= 1 && best > 0) break;  // else low = 1, which was not tried
    }
  }
  if (options.margin == 0.0) return best;
  return std::max<int64_t>(
      1, static_cast<int64_t>(static_cast<double>(best) * (1.0 - options.margin)));
}

}  // namespace

int64_t search_batch_size(const ScaleBatchSizeOptions& options, int64_t limit, const Fits& fits) {
  limit = std::min(limit, options.max_val);
  return options.mode == "power" ? by_power(options, limit, fits)
                                 : by_bisection(options, limit, fits);
}

}  // namespace levin::detail
