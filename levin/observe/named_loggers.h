#pragma once
// Loggers by name, in one folder: `--logger csv,tensorboard`. Not for users.

#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/logger.h"

namespace levin::detail {

/// The names, in the order of the table: csv, jsonl, tensorboard.
LEVIN_API std::vector<std::string> logger_names();

/// Throws Error "base.text" for a name that no logger has, for one that is given twice, and for no names.
LEVIN_API void check_logger_names(const std::vector<std::string>& names);

/// Loggers that share a folder, whose version is determined when it is first needed. Throws what check_logger_names
/// throws.
LEVIN_API std::vector<std::shared_ptr<Logger>> loggers_named(const std::vector<std::string>& names,
                                                             LoggerOptions options);

}  // namespace levin::detail
