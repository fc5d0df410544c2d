#pragma once
// Token: a secret of one job, so that nobody but its own processes finds their words. Hex digits
// that the system draws; handed on in the environment, which other users cannot read.
//
//   variables.emplace_back(comm::kTokenVariable, comm::new_token());

#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::comm {

/// Read into Environment::token; launchers give it to their ranks.
inline constexpr const char* kTokenVariable = "LEVIN_JOB_TOKEN";

/// 128 bits as 32 digits.
LEVIN_API std::string new_token();

/// Takes as long wherever they differ.
LEVIN_API bool same_token(std::string_view one, std::string_view other);

}  // namespace levin::comm
