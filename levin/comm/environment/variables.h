#pragma once
// Variables: the environment variables of one process, read with care for what they hold.
// The launchers' readers take them as a value, so that a test can hand them any.
//
//   const Variables variables = Variables::of_this_process();
//   const int64_t rank = variables.number("RANK", {.least = 0});

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "levin/base/export.h"

namespace levin::comm {

class LEVIN_API Variables {
 public:
  struct Range {
    int64_t least = 0;
    int64_t most = std::numeric_limits<int64_t>::max();
  };

  Variables() = default;
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  static Variables of_this_process();

  /// Returns whether the variable is set to something; an empty one counts as not set.
  bool has(const std::string& name) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;
  /// Throws Error "comm.environment.missing" when it is not set, naming what else the launcher set.
  const std::string& text(const std::string& name, const std::string& because_of) const;

  /// Each throws Error "comm.environment.number" when it holds no integer within the range.
  std::optional<int64_t> number_if_set(const std::string& name, Range range) const;
  int64_t number_or(const std::string& name, Range range, int64_t otherwise) const;
  int64_t number(const std::string& name, Range range, const std::string& because_of) const;

 private:
  std::map<std::string, std::string> values_;
};

inline constexpr Variables::Range kAnyPort = {.least = 1, .most = 65535};

}  // namespace levin::comm
