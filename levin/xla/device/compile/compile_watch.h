#pragma once
// A compilation that may take minutes: lines in the log meanwhile, and a signal ends the wait for it.
//
//   executable = watched([=] { return client.compile(text); }, {.what = "5210 operators"});

#include <functional>
#include <string>

#include "levin/base/export.h"
#include "levin/xla/pjrt/executable.h"

namespace levin::xla {

struct CompileWatch {
  std::string what;             ///< for the lines
  double line_interval_s = 20;  ///< between two of them
  /// The signal that asks to stop, 0: none yet. nullptr: nothing stops it.
  int (*stop_signal)() = nullptr;
};

/// Runs `compile` and returns its result. Throws the exceptions of `compile`, and Error
/// "xla.interrupted" when a signal comes. A plugin's compiler cannot be stopped: with a stop_signal
/// it runs in a thread of its own, keeps all that it needs, and is left behind. No other
/// compilation begins until it has ended.
LEVIN_API pjrt::Executable watched(std::function<pjrt::Executable()> compile,
                                   const CompileWatch& watch);

/// One that was left behind still runs: a program that is to end now calls _Exit.
LEVIN_API bool is_compiling();

}  // namespace levin::xla
