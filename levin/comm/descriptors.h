#pragma once
// Descriptors: how many files and sockets this process may open. A rank needs one for each other
// that it talks to, and systems begin with 1024.

#include <cstdint>
#include <string>

#include "levin/base/export.h"

namespace levin::comm {

/// Raises the soft limit to `needed` plus the descriptors that programs open themselves, at most to
/// the hard limit. Returns the new limit.
LEVIN_API int64_t allow_descriptors(int64_t needed);

/// " (this process may open 1024 files, and 4000 are wanted; raise the limit by ulimit -n)"; ""
/// where there are enough.
LEVIN_API std::string shortage_of_descriptors(int64_t needed);

}  // namespace levin::comm
