#pragma once
// RunDirectory: a logger's folder save_dir/name/version_N and what every logger does with it.
// FolderLogger: a logger that has such a folder. Not for users.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/posix.h"
#include "levin/base/state.h"
#include "levin/observe/logger.h"

namespace levin::detail {

/// A hyperparameter's text stands for true or false, a number or a text. A number is a text that is
/// written the same when it is read and written again: "0.5" and not "007".
enum class TextKind { kBool, kNumber, kText };
TextKind kind_of_text(const std::string& text);

/// The name with LoggerOptions::prefix, in UTF-8.
std::string prefixed(const std::string& prefix, std::string_view name);

/// A file's name for a name that somebody logged: characters that a path gives a meaning become "_".
std::string file_name_of(std::string_view name);

class RunDirectory {
 public:
  /// Throws Error "observe.logger.dir" for a version below 0.
  explicit RunDirectory(LoggerOptions options);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Made at the first call. Throws Error "observe.logger.dir".
  const std::string& path() const;
  const LoggerOptions& options() const { return options_; }
  /// hparams.toml: true, false and numbers bare, all else as text.
  void write_hyperparams(const std::map<std::string, std::string>& hyperparams) const;
  /// FOLDER/NAME_STEP.EXTENSION below path().
  void write_beside(std::string_view folder, std::string_view name, int64_t step,
                    std::string_view extension, std::string_view bytes) const;
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

/// A logger in a folder. Images and texts go to files in it.
class FolderLogger : public Logger {
 public:
  explicit FolderLogger(std::shared_ptr<RunDirectory> directory)
      : directory_(std::move(directory)) {}

  void log_hyperparams(const std::map<std::string, std::string>& hyperparams) override;
  void flush() override {}  // every call writes through
  void log_image(const std::string& name, const at::Tensor& image, int64_t step,
                 std::string_view format) override;
  void log_text(const std::string& name, const std::string& text, int64_t step) override;
  std::string log_dir() const override { return directory_->path(); }
  std::vector<std::string> known_dirs() const override { return directory_->known_dirs(); }
  std::string name() const override { return directory_->options().name; }
  std::string version() const override;
  std::string save_dir() const override { return directory_->options().save_dir; }

 protected:
  RunDirectory& directory() const { return *directory_; }
  std::string full_name(std::string_view name) const {
    return prefixed(directory_->options().prefix, name);
  }

 private:
  std::shared_ptr<RunDirectory> directory_;
};

/// csv_logger, jsonl_logger and tensorboard_logger, in a folder that they may share.
std::shared_ptr<Logger> csv_logger_in(std::shared_ptr<RunDirectory> directory);
std::shared_ptr<Logger> jsonl_logger_in(std::shared_ptr<RunDirectory> directory);
std::shared_ptr<Logger> tensorboard_logger_in(std::shared_ptr<RunDirectory> directory,
                                              TensorBoardOptions options);

}  // namespace levin::detail
