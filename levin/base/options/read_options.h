#pragma once
// read_options: what parse_into does, as a function that neither prints nor exits, for command lines of
// any kind. The levin command reads its own by it.
//
//   const auto read = read_options({"-n", "2", "./train"}, {.program = "levin run", .takes_program = true}, walk);

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin::detail {

struct OptionRules {
  std::string program = "program";  ///< as --help names it
  std::string about = {};           ///< the first paragraph of --help
  /// PROGRAM [ARGUMENTS] follow the options: they are no options, and a switch takes a value after = alone.
  bool takes_program = false;
  std::string config = {};  ///< the file that is read, where it is there, when --config names none
  std::string error_id = {};  ///< prefix of error ids, instead of "base.options."
  bool environment = false;   ///< LEVIN_NAME sets the option "name", over the file
};

struct OptionsRead {
  std::optional<std::string> text = {};  ///< --help or --print-config wants it printed, and no more
  std::vector<std::string> program = {};  ///< its name and arguments
  std::set<std::string> given = {};       ///< names of the options that got a value
};

/// Sets the fields from the words, else the environment, else the file, else their own variables.
LEVIN_API OptionsRead read_options(const std::vector<std::string>& words, const OptionRules& rules,
                                   const WalkFields& walk);

/// The options of these names as TOML that read_options reads, each behind its help.
LEVIN_API std::string options_as_toml(const WalkFields& walk, const std::set<std::string>& names);

/// "--max-epochs" of "max_epochs".
LEVIN_API std::string flag_of(const std::string& name);

}  // namespace levin::detail
