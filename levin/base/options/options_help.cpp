#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "levin/base/options/options_help_impl.h"

namespace levin::detail {
namespace {

constexpr size_t kColumn = 38, kWidth = 100;

std::string row_text(const HelpRow& row) {
  std::string text = "  " + row.option;
  size_t at = text.size();
  const auto new_line = [&] {
    text += "\n" + std::string(kColumn, ' ');
    at = kColumn;
  };
  if (at + 2 > kColumn) {
    new_line();
  } else {
    text.append(kColumn - at, ' ');
    at = kColumn;
  }
  for (std::string_view rest = row.help; !rest.empty();) {
    const size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    if (at > kColumn && at + 1 + word.size() > kWidth) new_line();
    if (at > kColumn) text += ' ';
    at += word.size() + (at > kColumn ? 1 : 0);
    text += word;
  }
  return text + "\n";
}

}  // namespace

std::string help_rows(const std::vector<HelpRow>& rows) {
  std::vector<std::string> groups;
  for (const HelpRow& row : rows) {
    if (std::ranges::count(groups, row.group) == 0) groups.push_back(row.group);
  }
  std::string text;
  for (const std::string& group : groups) {
    text += fmt::format("\n{}:\n", group.empty() ? "options" : group);
    for (const HelpRow& row : rows) {
      if (row.group == group) text += row_text(row);
    }
  }
  return text;
}

}  // namespace levin::detail
