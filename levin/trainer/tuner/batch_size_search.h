#pragma once
// The order in which batch sizes are tried.
// Not for users.

#include <cstdint>
#include <functional>

#include "levin/base/export.h"
#include "levin/trainer/options.h"

namespace levin::detail {

/// Returns the largest size of its grid that fits, at most `limit`, less the margin of binsearch.
/// Follows _run_power_scaling and _run_binsearch_scaling of
/// lightning/pytorch/tuner/batch_size_scaling.py, which try the same sizes. Other than there, a
/// size is never larger than the limit, and none is returned that was not tried. Throws Error
/// "trainer.scale_batch_size" if no size fits.
LEVIN_API int64_t search_batch_size(const ScaleBatchSizeOptions& options, int64_t limit,
                                    const std::function<bool(int64_t size)>& fits);

}  // namespace levin::detail
