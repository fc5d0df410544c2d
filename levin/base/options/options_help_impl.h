#pragma once
// The text of --help: options in groups, each with its help beside it. The inside of read_options.

#include <string>
#include <vector>

#include "levin/base/options.h"
#include "levin/base/options/read_options.h"

namespace levin::detail {

struct HelpRow {
  std::string group;   ///< "": the first group
  std::string option;  ///< "--max-epochs [none]"
  std::string help;
};

/// Groups in the order of their first rows, lines of at most 100 columns where words allow that.
std::string help_rows(const std::vector<HelpRow>& rows);

/// The part of the options that --help shows.
struct HelpAsked {
  bool all = false;  ///< --help-all: each option of the sections too
  std::string
      about;  ///< --help WORD: only options with that word in their name or heading; "": all
};

/// Throws Error "base.options.unknown" if no option has the word that was asked for. groups: the heading of each field.
std::string help_text(const OptionRules& rules, const std::vector<Field>& fields,
                      const std::vector<std::string>& groups, const HelpAsked& asked);

/// "optimizer" of "optimizer.lr"; "" of an option outside of sections.
std::string section_of(const std::string& name);

/// Returns the key by which a TOML table [name] gives the option of that name itself: `class`, or `enabled` for a switch.
/// `class` in [optimizer] gives the option "optimizer".
std::string own_key(const Field& field);

/// Throws Error "base.options.unknown", with the nearest name.
[[noreturn]] void fail_unknown_option(std::string_view place, const std::string& given,
                                      const std::vector<std::string>& known);

}  // namespace levin::detail
