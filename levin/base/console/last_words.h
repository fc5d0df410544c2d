#pragma once
// The text that a program writes about the exception that ends it.
//
//   try { run(); } catch (const std::exception&) { std::cerr << levin::detail::last_words() << '\n'; }

#include <string>

#include "levin/base/export.h"

namespace levin::detail {

/// In a handler: the exception's text without frames, and where the run stood when it came
/// ("[rank 1, epoch 3, batch 12]"): what an uncaught one ends the program with. A line before it says
/// what levin knows about an exception that is not its own (Explanation). The place is known as
/// long as the Trainer is there.
LEVIN_API std::string last_words();

}  // namespace levin::detail
