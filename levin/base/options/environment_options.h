#pragma once
// Environment variables of options: LEVIN_MAX_EPOCHS=3 is the flag --max-epochs 3. The inside of read_options.
// Not for users.

#include <optional>
#include <string>
#include <vector>

namespace levin::detail {

/// "LEVIN_MAX_EPOCHS" of "max_epochs", "LEVIN_OPTIMIZER__LR" of "optimizer.lr".
std::string variable_of(const std::string& name);

/// The value of an option's variable. Nothing if it is unset or empty, or is a setting of levin itself (LEVIN_LOG).
std::optional<std::string> from_environment(const std::string& name);

/// Warns about each variable whose name is nearly that of an option. Others may be meant for other programs.
void warn_of_misspelt_variables(const std::vector<std::string>& names);

}  // namespace levin::detail
