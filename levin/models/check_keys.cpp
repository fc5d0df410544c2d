#include "levin/models/check_keys.h"

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::models {

using detail::KnownKeys;

std::optional<RefusedKey> refused_key(const Config& config, const KnownKeys& known) {
  constexpr size_t kShown = 80;
  for (const std::string& key : config.keys()) {
    const std::string value = config.json(key);
    const auto [verdict, wanted] = known.judge(key, value);
    if (verdict == KnownKeys::Verdict::kRefused)
      return RefusedKey{printable(key), printable(value.substr(0, kShown)), wanted};
  }
  return std::nullopt;
}

void warn_of_unknown(const Config& config, const KnownKeys& known) {
  std::vector<std::string> unknown;
  for (const std::string& key : config.keys()) {
    if (known.judge(key, "null").verdict == KnownKeys::Verdict::kUnknown) unknown.push_back(key);
  }
  detail::warn_of_unknown_keys(config.origin(), unknown);
}

void check_keys(const Config& config, const KnownKeys& known) {
  if (const auto refused = refused_key(config, known)) {
    LEVIN_FAIL("models.config",
               "{}: got {} = {}, wanted {}; levin supports no other value for this model",
               config.origin(), refused->key, refused->value, refused->wanted);
  }
  warn_of_unknown(config, known);
}

}  // namespace levin::models
