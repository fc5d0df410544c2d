#pragma once
// RunDirectory: a logger's folder save_dir/name/version_N and what every logger does with it.
// Not for users.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/posix.h"
#include "levin/base/state.h"
#include "levin/observe/logger.h"

namespace levin::detail {

class RunDirectory {
 public:
  /// Throws Error "observe.logger.dir" for a version below 0.
  explicit RunDirectory(LoggerOptions options);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Made at the first call. Throws Error "observe.logger.dir".
  const std::string& path() const;
  /// hparams.toml: true, false and numbers bare, all else as text.
  void write_hyperparams(const std::map<std::string, std::string>& hyperparams) const;
  /// Runs write; a failure is a warning, said once.
  void attempt(const std::function<void()>& write) const;

  /// Identifies the folder: its name, and the run_id in it.
  State state_dict() const;
  /// Takes that folder where it is there, holds that run_id, and no other process writes it.
  bool resume(const State& state);
  std::vector<std::string> known_dirs() const;

 private:
  std::string experiment() const;
  void take(const std::string& folder) const;

  LoggerOptions options_;
  mutable std::string path_;
  mutable std::string id_;  // "": it could not be written
  mutable bool warned_ = false;
  mutable posix::Descriptor lock_;  // the file run_id, locked against other processes
};

/// csv_logger and tensorboard_logger, in a folder that they may share.
std::shared_ptr<Logger> csv_logger_in(std::shared_ptr<RunDirectory> directory);
std::shared_ptr<Logger> tensorboard_logger_in(std::shared_ptr<RunDirectory> directory);

}  // namespace levin::detail
