#include "levin/base/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "levin/base/check.h"
#include "levin/base/options/command_words.h"
#include "levin/base/options/config_file_impl.h"
#include "levin/base/options/environment_options.h"
#include "levin/base/options/options_help_impl.h"
#include "levin/base/options/read_options.h"

namespace levin {

FieldVisitor::~FieldVisitor() = default;

namespace detail {
namespace {

struct Collected {
  std::vector<Field> fields;
  std::vector<std::string> groups;  ///< heading of each field's group
};

class Collector : public FieldVisitor {
 public:
  Collected all;

 protected:
  void visit(Field field) override {
    if (field.name.empty()) {  // option_group
      group_ = field.help;
      return;
    }
    all.fields.push_back(std::move(field));
    all.groups.push_back(group_);
  }

 private:
  std::string group_;
};

Collected collect(const WalkFields& walk) {
  Collector collector;
  walk(collector);
  std::set<std::string> seen;
  for (const Field& field : collector.all.fields) {
    LEVIN_CHECK(seen.insert(field.name).second, "base.options.duplicate",
                "two options are named '{}'; rename one of them", field.name);
  }
  return std::move(collector.all);
}

/// The flags of each option in both spellings, in the order of the fields; then those that all programs have.
std::vector<Flag> flags_of(const std::vector<Field>& fields, const OptionRules& rules) {
  const FlagValue of_switch = rules.takes_program ? FlagValue::kAttached : FlagValue::kPossible;
  std::vector<Flag> flags;
  for (const Field& field : fields) {
    flags.push_back({{flag_of(field.name), "--" + field.name},
                     field.is_switch ? of_switch : FlagValue::kWanted});
    if (const std::string section = section_of(field.name); !section.empty()) {
      const std::string own = field.name.substr(section.size());
      flags.back().names.push_back(flag_of(section) + own);  // --early-stopping.min_delta
      flags.back().names.push_back("--" + section + flag_of(own).substr(2));
    }
    if (!field.letter.empty()) flags.back().names.push_back("-" + field.letter);
  }
  flags.push_back({{"--config"}});
  flags.push_back({{"--print-config", "--print_config"}, FlagValue::kAttached});
  flags.push_back(
      {{"--help", "-h"}, rules.takes_program ? FlagValue::kAttached : FlagValue::kPossible});
  flags.push_back({{"--help-all", "--help_all"}, FlagValue::kAttached});
  return flags;
}

/// A command line's contents: flags are kept as text until the file has been read, whatever their order.
struct Given {
  std::map<std::string, std::string>
      values;  ///< by the field's name; the last where one is given twice
  std::vector<std::string> program;
  std::optional<std::string> config;
  bool print_config = false;
  std::optional<HelpAsked> help;
};

bool is_on(const CommandWord& word) {
  bool on = true;
  try {
    if (word.value) from_text(*word.value, on);
  } catch (const Error&) {
    LEVIN_FAIL("base.options.value", "{}: got '{}', wanted true or false", word.text,
               printable(*word.value));
  }
  return on;
}

bool is_truth(const std::string& text) {
  bool on = false;
  try {
    from_text(text, on);
    return true;
  } catch (const Error&) {
    return text.empty();
  }
}

std::optional<HelpAsked> help_asked(const CommandWord& word) {
  const bool asks_for_all = word.text.size() > std::string_view("--help").size();
  if (word.value && !is_truth(*word.value) && !asks_for_all) return HelpAsked{.about = *word.value};
  if (!is_on(word)) return std::nullopt;
  return HelpAsked{.all = asks_for_all};
}

Given read_flags(const std::vector<std::string>& words, const std::vector<Field>& fields,
                 const OptionRules& rules) {
  const std::vector<Flag> flags = flags_of(fields, rules);
  Given given;
  for (const CommandWord& word :
       split_command_line(words, flags, {.ends_at_word = rules.takes_program})) {
    const auto index = static_cast<size_t>(word.flag);
    if (word.flag < 0) {
      given.program.push_back(word.text);
    } else if (index < fields.size()) {
      given.values[fields[index].name] = word.value.value_or("true");
    } else if (index == fields.size()) {
      given.config = word.value;
    } else if (index == fields.size() + 1) {
      given.print_config = is_on(word);
    } else {
      given.help = help_asked(word);
    }
  }
  if (given.help || given.program.empty()) return given;
  const std::string first = given.program.front();
  if (rules.takes_program && first == "--") given.program.erase(given.program.begin());
  if (rules.takes_program && (first == "--" || !first.starts_with('-'))) return given;
  std::vector<std::string> known;
  for (const Flag& flag : flags) known.push_back(flag.names[0]);
  fail_unknown_option("the command line", printable(first.substr(0, first.find('='))), known);
}

/// The file to read; empty: none.
std::string config_of(const Given& given, const OptionRules& rules) {
  LEVIN_CHECK(!given.config || !given.config->empty(), "base.options.config",
              "--config: got an empty name; name a TOML file, or leave it out");
  std::error_code unknown;
  const bool is_there = std::filesystem::exists(rules.config, unknown);
  return given.config ? *given.config : is_there ? rules.config : "";
}

OptionsRead read_collected(const std::vector<std::string>& words, const OptionRules& rules,
                           const Collected& all) {
  Given given = read_flags(words, all.fields, rules);
  if (given.help) return {.text = help_text(rules, all.fields, all.groups, *given.help)};
  OptionsRead read{.program = std::move(given.program)};
  const std::string config = config_of(given, rules);
  if (!config.empty()) read.given = read_config(config, all.fields);
  for (const Field& field : all.fields) {
    const auto text = given.values.find(field.name);
    const char* variable = field.variable.empty() ? nullptr : std::getenv(field.variable.c_str());
    const auto ours = rules.environment ? from_environment(field.name) : std::nullopt;
    if (text != given.values.end()) {
      set_field(field, "the command line", text->second);
    } else if (ours) {
      set_field(field, "the environment variable " + variable_of(field.name), *ours);
    } else if (variable != nullptr && *variable != 0 && !read.given.contains(field.name)) {
      set_field(field, field.variable, variable);
    } else {
      continue;
    }
    read.given.insert(field.name);
  }
  if (rules.environment) warn_of_misspelt_variables(names_of(all.fields));
  if (given.print_config) read.text = config_text(all.fields);
  return read;
}

}  // namespace

OptionsRead read_options(const std::vector<std::string>& words, const OptionRules& rules,
                         const WalkFields& walk) {
  const Collected all = collect(walk);
  try {
    return read_collected(words, rules, all);
  } catch (const Error& error) {
    if (rules.error_id.empty() || !error.id().starts_with("base.options.")) throw;
    throw Error(rules.error_id, error.text());
  }
}

std::optional<std::string> read_options(int argc, const char* const* argv, const WalkFields& walk) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  return read_options(words, {.program = argc > 0 ? argv[0] : "program", .environment = true}, walk)
      .text;
}

std::string options_as_toml(const WalkFields& walk, const std::set<std::string>& names) {
  std::vector<Field> fields = collect(walk).fields;
  std::erase_if(fields, [&](const Field& field) { return !names.contains(field.name); });
  return config_text(fields);
}

std::string flag_of(const std::string& name) {
  std::string flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

void read_options_or_exit(int argc, const char* const* argv, const WalkFields& walk) {
  try {
    const auto text = read_options(argc, argv, walk);
    if (!text) return;
    std::fputs(text->c_str(), stdout);
    std::exit(0);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(2);
  }
}

std::map<std::string, std::string> options_as_text(const WalkFields& walk) {
  std::map<std::string, std::string> text;
  for (const Field& field : collect(walk).fields) {
    if (has_value(field)) text[field.name] = field.get();
  }
  return text;
}

void set_options(const std::map<std::string, std::string>& values, const WalkFields& walk) {
  const std::vector<Field> fields = collect(walk).fields;
  for (const auto& [name, value] : values) {
    const auto field = std::ranges::find(fields, name, &Field::name);
    if (field == fields.end()) {
      const auto close = nearest(name, names_of(fields));
      LEVIN_FAIL("base.options.unknown", "got a value for '{}', which is no option{}",
                 printable(name), close ? fmt::format("; did you mean '{}'?", *close) : "");
    }
    try {
      field->set(value);
    } catch (const Error& error) {
      LEVIN_FAIL("base.options.value", "{}: {}", name, error.text());
    }
  }
}

}  // namespace detail
}  // namespace levin
