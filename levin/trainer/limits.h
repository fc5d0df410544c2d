#pragma once
// Limits: the trainer's options about how long and how often, checked and resolved into counts.

#include <cstdint>
#include <optional>

#include "levin/trainer/options.h"
#include "levin/trainer/progress.h"

namespace levin::detail {

/// Throws Error "trainer.options" for values outside their range or that exclude each other.
void check_options(const TrainerOptions& options);

/// Seconds of "DD:HH:MM:SS" (leading parts may be left out); nothing for an empty text.
LEVIN_API std::optional<double> parse_duration(const std::string& text);

struct LEVIN_API Limits {
  int64_t max_epochs = -1;        ///< -1: none
  int64_t max_steps = -1;         ///< -1: none
  std::optional<double> seconds;  ///< of training
  int64_t train_batches = 0;      ///< of an epoch
  int64_t val_batches = 0;        ///< of a validation
  int64_t val_interval = 0;       ///< batches between validations
  int64_t accumulate = 1;

  /// Optimizer steps of the whole run, -1 without limit.
  int64_t total_steps() const;
  /// Number of batches in the accumulation group that the batch of this index belongs to: the last
  /// group of an epoch may be shorter.
  int64_t group_size(int64_t batch) const;
  /// Whether, after so many batches of an epoch, a group is complete.
  bool group_complete(int64_t batches_done) const;
};

/// The loaders' sizes are in batches of an epoch on this rank.
LEVIN_API Limits resolve_limits(const TrainerOptions& options, int64_t train_size,
                                int64_t val_size);

}  // namespace levin::detail
