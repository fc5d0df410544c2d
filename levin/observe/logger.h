#pragma once
// Loggers: where a run's numbers and settings are kept on disk.
// Fed by the trainer every log_every_n_steps steps and at the end of each epoch, on rank 0.
//
//   auto logger = levin::csv_logger({.save_dir = "runs", .name = "mnist"});
//   logger->log_hyperparams(levin::options_as_text(options));
//   logger->log_metrics({{"train_loss", 0.31}}, /*epoch=*/2, /*step=*/412);
//   // runs/mnist/version_0/metrics.csv and hparams.toml

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/base/state.h"
#include "levin/observe/metric.h"

// LoggedValues: what the steps of one stage (training, validation, test) have logged.
// Filled by Module::log during a step, read by the trainer for loggers, progress bar and callbacks.
//
//   LoggedValues logged(true, false);                     // training: on_step, not on_epoch
//   logged.begin_step(batch.size());
//   logged.log("train_loss", loss, {.prog_bar = true});   // stays on loss's device
//   logger->log_metrics(logged.step_values(LogTarget::kLogger), epoch, step);   // waits for it

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

/// A logger that cannot write (the disk is full) warns once, drops what it is given, and training
/// goes on; only log_dir throws. The CSV file is gone on with as soon as there is room again, the
/// event file is not.
class LEVIN_API Logger {
 public:
  virtual ~Logger();

  /// step counts optimizer steps.
  virtual void log_metrics(const Scalars& values, int64_t epoch, int64_t step) = 0;
  virtual void log_hyperparams(const std::map<std::string, std::string>& hyperparams) = 0;
  virtual void flush() = 0;
  /// The run's folder, made when it is first asked for or first written to. Throws Error
  /// "observe.logger.dir" when it cannot be made.
  virtual std::string log_dir() const = 0;

  /// For a checkpoint: which folder it writes, and how far.
  virtual State state_dict() const { return {}; }
  /// Before anything is logged by a run that goes on from a checkpoint with that state, at that step: goes on in the
  /// state's folder, without what was logged there after it. False, and nothing changed, where the folder is not
  /// there, is another run's, or another process writes it.
  virtual bool resume(const State& state, int64_t step) { return false; }
  /// Folders that runs with this logger have logged to.
  virtual std::vector<std::string> known_dirs() const { return {log_dir()}; }
};

/// The run's folder is save_dir/name/version_N; two loggers share one when both are given the same
/// version. A version that is there already is gone on with. The file run_id in it tells it from folders of that name
/// which other runs have made.
struct LoggerOptions {
  std::string save_dir = "levin_logs";  ///< folder of all runs
  std::string name;                     ///< of the experiment; empty: no folder of its own
  std::optional<int64_t> version = {};  ///< unset: one more than the highest there is

  LEVIN_API void fields(FieldVisitor& field);
};

/// Makes dir/version_N, N being one more than the highest there is, and returns N; each of several
/// processes that ask at once gets its own. Throws Error "observe.logger.dir".
LEVIN_API int64_t claim_version(const std::string& dir);

/// metrics.csv: a row for each log_metrics with the columns step, epoch and then the names in the
/// order of their first appearance, numbers as short as they read back the same. A row has reached
/// the system when log_metrics returns: killing the process loses none. A new name rewrites the
/// file with one column more. hparams.toml lies beside it. A metrics.csv that does not begin with
/// the columns step and epoch is left alone, with a warning.
LEVIN_API std::shared_ptr<Logger> csv_logger(LoggerOptions options = {});

/// TensorBoard event file: every value as a scalar of that name, "epoch" among them as in
/// Lightning, the hyperparameters as a text of the name "hparams" and in hparams.toml. Written
/// through as well. A resumed run writes a file of its own, which begins with tensorflow's SessionLog START: TensorBoard
/// drops later steps of the files before.
LEVIN_API std::shared_ptr<Logger> tensorboard_logger(LoggerOptions options = {});

/// Both of them in one folder, whose number is taken when it is first needed.
LEVIN_API std::vector<std::shared_ptr<Logger>> csv_and_tensorboard(LoggerOptions options = {});

}  // namespace levin
