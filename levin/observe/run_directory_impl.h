#pragma once
// RunDirectory: a logger's folder save_dir/name/version_N and what every logger does with it.
// Not for users.

#include <functional>
#include <string>

#include "levin/observe/logger.h"

namespace levin::detail {

class RunDirectory {
 public:
  explicit RunDirectory(LoggerOptions options) : options_(std::move(options)) {}

  /// Made at the first call. Throws Error "observe.logger.dir".
  const std::string& path() const;
  /// hparams.toml: true, false and numbers bare, all else as text.
  void write_hyperparams(const std::map<std::string, std::string>& hyperparams) const;
  /// Runs write; a failure is a warning, said once.
  void attempt(const std::function<void()>& write);

 private:
  LoggerOptions options_;
  mutable std::string path_;
  bool warned_ = false;
};

}  // namespace levin::detail
