#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options/config_file_impl.h"
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

/// The options of a section in one row.
HelpRow folded(const std::string& section, const std::string& group,
               const std::vector<std::string>& options) {
  constexpr size_t kShown = 4;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, options.size()); ++i) {
    names += (i == 0 ? "" : ", ") + options[i];
  }
  if (options.size() > kShown) names += fmt::format(" and {} more", options.size() - kShown);
  return {group, flag_of(section) + ".OPTION",
          fmt::format("{}; --help {} describes them", names, section)};
}

/// The options shown on a word: those of that section, or else all that have it in name or heading.
std::set<std::string> shown_for(const std::string& word, const std::vector<Field>& fields,
                                const std::vector<std::string>& groups) {
  std::string wanted = word;
  while (wanted.starts_with('-')) wanted.erase(0, 1);
  std::ranges::replace(wanted, '-', '_');
  std::set<std::string> in_section, with_word;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = fields[i].name;
    if (fields[i].help.empty()) continue;
    if (section_of(name) == wanted) in_section.insert(name);
    if (name == wanted) in_section.insert(name);
    if (name.find(wanted) != std::string::npos || groups[i].find(word) != std::string::npos) {
      with_word.insert(name);
    }
  }
  return in_section.size() > 1 ? in_section : with_word;
}

}  // namespace

std::string section_of(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string own_key(const Field& field) { return field.is_switch ? "enabled" : "class"; }

void fail_unknown_option(std::string_view place, const std::string& given,
                         const std::vector<std::string>& known) {
  const auto close = nearest(given, known);
  LEVIN_FAIL("base.options.unknown", "{} has no option '{}'; {}", place, given,
             close ? fmt::format("did you mean '{}'?", *close) : "--help lists them all");
}

std::string help_text(const OptionRules& rules, const std::vector<Field>& fields,
                      const std::vector<std::string>& groups, const HelpAsked& asked) {
  std::vector<HelpRow> rows;
  std::set<std::string> shown;
  std::map<std::string, std::vector<std::string>> sections;
  if (asked.about.empty()) {
    const bool has_sections = std::ranges::any_of(
        fields, [](const Field& field) { return !section_of(field.name).empty(); });
    rows = {{"", "--help, -h", "print this help and exit"}};
    if (!rules.takes_program) {
      rows.push_back({"", "--help WORD", "print the options with this word in name or heading"});
    }
    if (has_sections) rows.push_back({"", "--help-all", "print all options and exit"});
    rows.push_back(
        {"", rules.config.empty() ? "--config FILE" : fmt::format("--config [{}]", rules.config),
         "TOML file to read these options from"});
    rows.push_back({"", "--print-config", "print all options as TOML and exit"});
  } else {
    shown = shown_for(asked.about, fields, groups);
    if (shown.empty()) fail_unknown_option("--help", printable(asked.about), names_of(fields));
  }
  for (const Field& field : fields) {
    const std::string section = section_of(field.name);
    if (section.empty() || field.help.empty()) continue;
    sections[section].push_back(field.name.substr(section.size() + 1));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    if (field.help.empty() || (!asked.about.empty() && !shown.contains(field.name))) continue;
    const std::string section = section_of(field.name);
    if (!section.empty() && !asked.all && asked.about.empty()) {
      const auto names = std::exchange(sections[section], {});
      if (!names.empty()) rows.push_back(folded(section, groups[i], names));
      continue;
    }
    const std::string letter = field.letter.empty() ? "" : ", -" + field.letter;
    rows.push_back({groups[i], fmt::format("{}{} [{}]", flag_of(field.name), letter, field.get()),
                    field.help});
  }
  return fmt::format("Usage: {} [OPTIONS]{}\n\n{}{}\n", rules.program,
                     rules.takes_program ? " PROGRAM [ARGUMENTS OF THE PROGRAM]" : "",
                     rules.about.empty() ? "" : rules.about + "\n\n",
                     rules.environment
                         ? "Flags override environment variables (LEVIN_MAX_EPOCHS for "
                           "--max-epochs), which override the\nfile given by --config, which "
                           "overrides the defaults, shown in brackets."
                         : "Flags override the file given by --config, which overrides the "
                           "defaults, shown in brackets.") +
         help_rows(rows);
}

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
