#pragma once
// Where log lines go: to stderr, or to a function that the program sets.
//
//   levin::log::set_sink([](levin::log::Level level, std::string_view text) { own_log(text); });

#include <functional>
#include <string_view>

#include "levin/base/export.h"

namespace levin::log {

enum class Level { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3, kOff = 4 };

/// Takes what is written, from any thread, several at a time; must not throw, nor log.
using Sink = std::function<void(Level level, std::string_view text)>;

/// From now on lines go there and no longer to stderr; an empty one puts stderr back. Gives the
/// sink there was. Calls that have begun may still reach that one. Which lines are written is for
/// LEVIN_LOG to say (debug, info, warn, error or off).
LEVIN_API Sink set_sink(Sink sink);

}  // namespace levin::log
