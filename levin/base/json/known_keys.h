#pragma once
// KnownKeys: the closed list of a foreign file's keys, and what levin does with each of them.
// Stands between the file's JSON and its reader; tests/oracle/foreign_keys.py compares the lists with the peers' sources.
// Not for users.
//
//   constexpr std::string_view kKeys = R"keys(
//     read      vocab_size hidden_size        # levin's reader looks at it
//     harmless  transformers_version          # nothing that is computed depends on it
//     only      is_causal = true              # any other value is refused
//     only      scoring = "mean" | "first"
//     refused   quantization_config           # any value is refused
//   )keys";
//   const KnownKeys known({kKeys});
//   const auto [verdict, wanted] = known.judge("is_causal", "false");  // kRefused, "true"

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::detail {

class LEVIN_API KnownKeys {
 public:
  enum class Verdict { kRead, kHarmless, kRefused, kUnknown };
  struct Answer {
    Verdict verdict = Verdict::kUnknown;
    std::string wanted;  ///< for kRefused: the allowed values, for the error's text
  };

  /// Lists as above: a line is a word and its keys, or `only`, a key, `=` and JSON values between bars.
  /// A comment begins with '#'. A later list's line replaces an earlier one's for the same key.
  explicit KnownKeys(std::initializer_list<std::string_view> lists);

  /// The value as JSON text. null counts as absent: it is never refused. Numbers compare by value,
  /// so that 1 is 1.0.
  Answer judge(std::string_view key, std::string_view value) const;

  /// In alphabetical order.
  std::vector<std::string> keys() const;

 private:
  struct Rule {
    Verdict verdict = Verdict::kUnknown;
    std::vector<std::string> only;  // JSON; empty: every value, or none of kRefused
  };

  void add(std::string_view line);

  std::map<std::string, Rule, std::less<>> rules_;
};

/// One warning of level warn that names the keys of a file which no list has; nothing without keys.
LEVIN_API void warn_of_unknown_keys(const std::string& origin,
                                    const std::vector<std::string>& keys);

}  // namespace levin::detail
