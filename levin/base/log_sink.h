#pragma once
// The destination of log messages: stderr, or a function that the program sets.
//
//   levin::log::set_sink([](levin::log::Level level, std::string_view text) { own_log(text); });

#include <functional>
#include <string_view>

#include "levin/base/export.h"

namespace levin::log {

/// Severity of a log message. The environment variable LEVIN_LOG names the lowest level that is
/// written (debug, info, warn, error or off; info by default). Ranks other than 0 write errors
/// only, unless LEVIN_LOG_ALL_RANKS is set.
enum class Level {
  kDebug = 0,  ///< details for finding faults
  kInfo = 1,   ///< progress of the run
  kWarn = 2,   ///< likely mistakes; the run goes on
  kError = 3,  ///< failures
  kOff = 4     ///< only a threshold: no message is written
};

/// A function that receives each message that is written. Any thread may call it, and several may
/// call it at the same time. It must not throw and must not log.
using Sink = std::function<void(Level level, std::string_view text)>;

/// Sends log messages to the given function instead of stderr, and returns the previous sink. An
/// empty function restores stderr. Log calls that have already begun may still reach the previous
/// sink. LEVIN_LOG (debug, info, warn, error or off) decides which messages are written.
LEVIN_API Sink set_sink(Sink sink);

}  // namespace levin::log
