#pragma once
// split_command_line: the flags of a command line, each with its value, before anybody knows what a value means.
// levin::parse reads the options of programs by it, the levin command its own.
//
//   split_command_line({"--max-time=", "-n", "2", "a"}, {{{"--max-time"}}, {{"-n"}}}, {});
//   // --max-time "", -n "2", and the word "a"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::detail {

enum class FlagValue {
  kWanted,    ///< after =, or the next word
  kPossible,  ///< the same, unless the next word is an option or there is none
  kAttached,  ///< after = alone, or none
};

struct Flag {
  std::vector<std::string> names;  ///< "--max-time", "-n"; the first stands in messages
  FlagValue value = FlagValue::kWanted;
};

struct CommandWord {
  int64_t flag = -1;                      ///< index of the flag; -1: no flag, `text` is the word
  std::string text = {};                  ///< as it was written, without a value
  std::optional<std::string> value = {};  ///< "" after "--flag=" and before ''
};

struct CommandRules {
  bool ends_at_word = false;  ///< a program follows: what stands behind the first word is its own
  std::string error_id = "base.options.value";
};

/// In the order of the line; "--" and all behind it are words. An empty value is a value. A word that looks like an
/// option ("--name", or the short name of one) is no value of the flag before it unless = joins them. Throws Error
/// with the rules' id, which names the flag, for one that has no value.
LEVIN_API std::vector<CommandWord> split_command_line(const std::vector<std::string>& words,
                                                      const std::vector<Flag>& flags,
                                                      const CommandRules& rules = {});

}  // namespace levin::detail
