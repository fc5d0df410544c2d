#pragma once
// How the keys of a file compare with the closed list of the keys that levin knows
// (base/json/known_keys.h).

#include <optional>
#include <string>
#include <vector>

#include "levin/base/json/known_keys.h"
#include "levin/models/pretrained.h"

namespace levin::models {

struct RefusedKey {
  std::string key, value;  ///< for a message
  std::string wanted;
};

/// The first key whose value the list refuses.
std::optional<RefusedKey> refused_key(const Config& config, const detail::KnownKeys& known);
/// One warning that names those which the list does not have.
void warn_of_unknown(const Config& config, const detail::KnownKeys& known);

/// Throws Error "models.config" for the first of refused_key, and warns of unknown ones.
void check_keys(const Config& config, const detail::KnownKeys& known);

}  // namespace levin::models
