#pragma once
// Tells of options that do nothing in a run: intervals that never end, names that nobody logs.

#include "levin/trainer/options.h"
#include "levin/trainer/run/limits.h"
#include "levin/trainer/run/listeners.h"
#include "levin/trainer/run/run_log.h"

namespace levin::detail {

/// Called before the first batch.
void warn_of_intervals(const TrainerOptions& options, const Limits& limits, bool has_validation);

/// Called after an epoch of so many batches in which no validation came due.
void warn_of_no_validation(const Limits& limits, int64_t batches);

/// Called after the first step, when names of training are known, and those of validation if one
/// has run. Warns of a callback that monitors a name which nothing has logged, if a logged name is
/// spelt nearly like it. A wrong name is an error when it is first looked up, an epoch later.
void warn_of_monitors(const Listeners& listeners, RunLog& log);

}  // namespace levin::detail
