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

/// Read into Environment::store_file; a launcher gives it to ranks that are all on its machine.
inline constexpr const char* kStoreVariable = "LEVIN_JOB_STORE";

/// 128 bits as 32 digits.
LEVIN_API std::string new_token();

/// Returns the word that stands for a token in the keys of a store. Listing the keys does not
/// reveal the token. "" gives "".
LEVIN_API std::string key_word(std::string_view token);

/// Takes as long wherever they differ.
LEVIN_API bool same_token(std::string_view one, std::string_view other);

}  // namespace levin::comm
