#pragma once
// current_place: the line of the user's code that is running, for an error.

#include <string>

#include "levin/base/export.h"

namespace levin::graph {

/// ", in " with its function, file and line (which needs debug information); "" where it is not
/// known. Takes milliseconds.
LEVIN_API std::string current_place();

/// The same of the backtrace that a c10::Error holds.
LEVIN_API std::string place_in(const std::string& backtrace);

}  // namespace levin::graph
