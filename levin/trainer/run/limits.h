#pragma once
// Limits: the trainer's options about how long and how often, checked and resolved into counts.

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "levin/trainer/options.h"
#include "levin/trainer/run/progress.h"

namespace levin::detail {

/// Throws Error "trainer.options" for values outside their range or that exclude each other.
void check_options(const TrainerOptions& options);

/// Seconds of "DD:HH:MM:SS" (leading parts may be left out); nothing for an empty text. Throws Error
/// "trainer.options" that names the option.
LEVIN_API std::optional<double> parse_duration(const std::string& text,
                                               std::string_view option = "max_time");

/// Limits::val_epochs if val_interval counts batches across epochs.
inline constexpr int64_t kAcross = 0;
/// Batches of an epoch of a stream that nobody counted.
inline constexpr int64_t kUncounted = std::numeric_limits<int64_t>::max();

/// Returns a portion of so many batches. For uncounted batches (total is nullopt) the full portion
/// is kUncounted. Throws Error "trainer.options" that names the option for another fraction of
/// uncounted batches, and for a fraction of counted ones that is less than one batch.
LEVIN_API int64_t portion_of(std::optional<int64_t> total, std::string_view option,
                             const Portion& portion);

/// Each epoch ends with its one validation, as the options stand unless they are changed.
bool validates_once_an_epoch(const TrainerOptions& options);

struct LEVIN_API Limits {
  int64_t max_epochs = -1;  ///< -1: none
  int64_t max_steps = -1;   ///< -1: none
  int64_t min_epochs = 0;
  int64_t min_steps = 0;
  std::optional<double> seconds;  ///< time of training
  int64_t train_batches = 0;      ///< batches of an epoch; uncounted: at most, or kUncounted
  int64_t val_batches = 0;        ///< batches of a validation, or kUncounted
  int64_t val_interval = 0;       ///< batches between validations; kUncounted: an epoch
  int64_t val_epochs = 1;         ///< validation every so many epochs; kAcross: see there
  std::optional<double> val_seconds = {};  ///< seconds between validations, instead of val_interval
  int64_t accumulate = 1;                  ///< batches of a window in the running epoch
  EpochCounts accumulate_by_epoch = {};
  int64_t accumulate_otherwise = 1;    ///< batches of a window before the first of these
  bool counted = true;                 ///< train_batches is how many there are
  std::optional<int64_t> ended_after;  ///< batches of the running epoch, once its end is in sight
  int64_t windows_from =
      0;  ///< batches of the running epoch before its first accumulation window; of a resumed one

  /// Optimizer steps of so many epochs of counted batches.
  int64_t steps_of(int64_t epochs) const;
  /// Optimizer steps of the whole run, -1 without limit or when they are not known.
  int64_t total_steps() const;
  /// Epochs of the whole run, begun ones included; -1 without limit or when they are not known.
  int64_t total_epochs() const;
  void begin_epoch(int64_t epoch) {
    ended_after.reset();
    windows_from = 0;
    enter_epoch(epoch);
  }
  /// Sets the size of the windows in an epoch.
  void enter_epoch(int64_t epoch) {
    accumulate = accumulate_by_epoch.at(epoch, accumulate_otherwise);
  }
  /// Returns whether, after so many batches, an epoch is complete.
  bool epoch_complete(int64_t batches_done) const;
  /// Returns how many batches of its accumulation window come before the batch of this index.
  int64_t place_in_window(int64_t batch) const { return (batch - windows_from) % accumulate; }
  /// Number of batches in the accumulation window that the batch of this index belongs to: the last
  /// window of an epoch may be shorter, which is not known of an uncounted one.
  int64_t window_size(int64_t batch) const;
  /// Returns whether a window is complete after so many batches of an epoch.
  bool window_complete(int64_t batches_done) const;
};

/// The loaders' sizes are in batches of an epoch on this rank, none for a stream that is uncounted.
LEVIN_API Limits resolve_limits(const TrainerOptions& options, std::optional<int64_t> train_size,
                                std::optional<int64_t> val_size);

}  // namespace levin::detail
