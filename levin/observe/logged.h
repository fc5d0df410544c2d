#pragma once
// LoggedValues: what the steps of one stage (training, validation, test) have logged.
// Filled by Module::log during a step, read by the trainer for loggers, progress bar and callbacks.
//
//   LoggedValues logged(true, false);                     // training: on_step, not on_epoch
//   logged.begin_step(batch.size());
//   logged.log("train_loss", loss, {.prog_bar = true});   // stays on loss's device
//   logger->log_metrics(logged.step_values(LogTarget::kLogger), epoch, step);   // waits for it

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/observe/metric.h"

namespace levin {
namespace detail {
class LogBook;
}

/// In the order of the arguments of LightningModule.log.
struct LogOptions {
  bool prog_bar = false;                   ///< show it on the progress bar
  bool logger = true;                      ///< write it to the loggers
  std::optional<bool> on_step = {};        ///< its value in the step; unset: true in training
  std::optional<bool> on_epoch = {};       ///< reduced over the epoch; unset: true in evaluation
  std::string reduce = "mean";             ///< over the epoch: mean, sum, min or max
  std::optional<int64_t> batch_size = {};  ///< samples the value stands for; unset: the batch's
};

struct Scalar {
  std::string name;
  double value = 0;
  bool operator==(const Scalar&) const = default;
};
using Scalars = std::vector<Scalar>;

/// Who reads: the loggers, the progress bar, or the callbacks, who see everything.
enum class LogTarget { kLogger, kProgressBar, kCallbacks };

/// log does not wait for the device, and allocates nothing once a name is known. Names should come
/// in the same order in every step; another order costs a search. Not thread-safe.
///
/// A name logged with on_step and on_epoch reads "x_step" and "x_epoch" (callbacks see "x" too),
/// any other name reads "x". Within the epoch a mean is weighted by batch size; a value of batch
/// size 0 enters no reduction. Errors: "observe.log.shape" (not one element), "observe.log.dtype"
/// (complex), "observe.log.reduce" (unknown), "observe.log.when" (neither on_step nor on_epoch),
/// "observe.log.options" (not as that name was logged before), "observe.log.kind" (a value and a
/// metric, or two metrics, of one name), "observe.log.batch_size" (negative).
class LEVIN_API LoggedValues {
 public:
  LoggedValues(bool default_on_step, bool default_on_epoch);
  ~LoggedValues();

  /// Is shown each value that is logged; the tensor is undefined for a number or a metric. true: it
  /// is not taken here, but will be logged once more.
  using Observer =
      std::function<bool(std::string_view, const at::Tensor& value, const LogOptions&)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  void begin_step(int64_t batch_size);
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  /// A tensor that nobody will change; the observer is not asked.
  void log_own(std::string_view name, const at::Tensor& value, const LogOptions& options);
  void log(std::string_view name, double value, const LogOptions& options = {});
  /// A metric reads on_epoch unless asked otherwise; on_step gives what it has gathered so far. It
  /// reduces itself and knows its batch sizes: reduce must stay "mean", batch_size is not used.
  void log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options = {});

  /// What was logged with on_step in the latest step. This and epoch_values wait for the device,
  /// once for all values.
  Scalars step_values(LogTarget target);
  /// For callbacks: what was logged with on_step since this was asked last, the newest of each
  /// name.
  Scalars take_step_values();
  /// What was logged with on_epoch since reset_epoch, reduced.
  Scalars epoch_values(LogTarget target);
  /// What the two above read last, however long ago; waits for nothing.
  Scalars latest(LogTarget target) const;

  /// Begins an epoch: sums start anew and metrics are reset. Names and their options stay known.
  void reset_epoch();

  /// Remembers the running sums, without waiting or copying; rewind() forgets what was logged
  /// since. Metrics, which their owner updates, stay as they are.
  void mark();
  void rewind();

  /// The running sums, so that an epoch goes on as if never interrupted; waits for nothing. A
  /// metric's part is merged into the metric when it is next logged under that name.
  State state_dict() const;
  void load_state_dict(const State& state);
  /// Adds another rank's state_dict. For the same bits on every rank: reset_epoch(), then merge
  /// every rank's state in the order of ranks, this rank's own among them.
  void merge(const State& other);

 private:
  template <class Choice>
  Scalars read_steps(LogTarget target, const Choice& is_chosen);

  std::unique_ptr<detail::LogBook> book_;
  Observer observer_;
};

}  // namespace levin
