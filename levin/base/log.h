#pragma once
// A small logger for what a user should read: one line to stderr, with level and rank, or what the
// program makes of it.
// Not for metrics: those go through Module::log to the loggers of observe/.
//
//   log::warn("data.loader: {} workers on {} cores", workers, cores);

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/base/log_sink.h"

namespace levin::log {

/// The lowest level that LEVIN_LOG includes.
LEVIN_API Level threshold();

/// Returns whether a line of this level is written: LEVIN_LOG is debug, info (default), warn, error
/// or off. Below error only rank 0 writes, unless LEVIN_LOG_ALL_RANKS is set.
LEVIN_API bool enabled(Level level);

/// Hands the text to the sink, or writes line_of it to stderr in one write.
LEVIN_API void write(Level level, std::string_view text);

/// "levin warn: text", in a run of several ranks "levin warn [rank 1]: text", and a newline.
LEVIN_API std::string line_of(Level level, std::string_view text);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug))
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError))
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace levin::log
