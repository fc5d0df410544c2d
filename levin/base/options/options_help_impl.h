#pragma once
// The text of --help: options in groups, each with its help beside it. The inside of read_options.

#include <string>
#include <vector>

namespace levin::detail {

struct HelpRow {
  std::string group;   ///< "": the first group
  std::string option;  ///< "--max-epochs [none]"
  std::string help;
};

/// Groups in the order of their first rows, lines of at most 100 columns where words allow that.
std::string help_rows(const std::vector<HelpRow>& rows);

}  // namespace levin::detail
