#pragma once
// Loggers: where a run's numbers and settings are kept on disk.
// Fed by the trainer every log_every_n_steps steps and at the end of each epoch, on rank 0.
//
//   auto logger = levin::csv_logger({.save_dir = "runs", .name = "mnist"});
//   logger->log_hyperparams(levin::options_as_text(options));
//   logger->log_metrics({{"train_loss", 0.31}}, /*epoch=*/2, /*step=*/412);
//   // runs/mnist/version_0/metrics.csv and hparams.toml

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/base/state.h"
#include "levin/observe/logged.h"

namespace levin {

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
