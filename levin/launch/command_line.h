#pragma once
// The command line of `levin run` that asks for given options, for other hosts and for manifests.

#include <string>
#include <string_view>
#include <vector>

#include "levin/launch/options.h"

namespace levin::launch {

/// "--max-restarts", "2", ... for what differs from the defaults and is no matter of where the
/// nodes meet, how many there are, or how many ranks each has.
LEVIN_API std::vector<std::string> flags_of(LaunchOptions options);

/// One word for a POSIX shell: 'it'\''s'.
LEVIN_API std::string shell_word(std::string_view word);
LEVIN_API std::string shell_line(const std::vector<std::string>& words);

}  // namespace levin::launch
