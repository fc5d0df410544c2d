#include "levin/base/options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "levin/base/check.h"

namespace levin {

FieldVisitor::~FieldVisitor() = default;

namespace detail {
namespace {

class Collector : public FieldVisitor {
 public:
  std::vector<Field> fields;

 protected:
  void visit(Field field) override { fields.push_back(std::move(field)); }
};

std::vector<Field> collect(const WalkFields& walk) {
  Collector collector;
  walk(collector);
  std::set<std::string> seen;
  for (const Field& field : collector.fields) {
    LEVIN_CHECK(seen.insert(field.name).second, "base.options.duplicate",
                "two options are named '{}'; rename one of them", field.name);
  }
  return std::move(collector.fields);
}

std::string flag_of(const std::string& name) {
  std::string flag = "--" + name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

[[noreturn]] void fail_unknown(std::string_view place, const std::string& given,
                               const std::vector<std::string>& known) {
  const auto close = nearest(given, known);
  LEVIN_FAIL("base.options.unknown", "{} has no option '{}'; {}", place, given,
             close ? fmt::format("did you mean '{}'?", *close) : "--help lists them all");
}

void set(const Field& field, std::string_view place, const std::string& text) {
  try {
    field.set(text);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    LEVIN_FAIL("base.options.value", "{} of {}: {}", field.name, place,
               what.substr(what.find(": ") + 2));
  }
}

std::string toml_text(const Field& field, const std::string& file, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  const auto* array = node.as_array();
  LEVIN_CHECK(!node.is_table() && (array == nullptr || field.is_list), "base.options.value",
              "{} of {} line {}: got {}, wanted {}", field.name, file, node.source().begin.line,
              array != nullptr ? "an array" : "a table", field.is_list ? "a list" : "one value");
  if (array != nullptr) {
    std::string joined;
    for (const toml::node& item : *array) {
      joined += (joined.empty() ? "" : ",") + toml_text(field, file, item);
    }
    return joined;
  }
  if (const auto* number = node.as_integer()) return to_text(number->get());
  if (const auto* number = node.as_floating_point()) return to_text(number->get());
  if (const auto* flag = node.as_boolean()) return to_text(flag->get());
  LEVIN_FAIL("base.options.value", "{} of {} line {}: dates are not taken; write it as a text",
             field.name, file, node.source().begin.line);
}

void read_config(const std::string& file, const std::vector<Field>& fields) {
  LEVIN_CHECK(std::filesystem::exists(file), "base.options.config",
              "no file '{}'; --print-config writes one to start from", file);
  toml::table table;
  try {
    table = toml::parse_file(file);
  } catch (const toml::parse_error& error) {
    LEVIN_FAIL("base.options.config", "{} line {} column {}: {}", file, error.source().begin.line,
               error.source().begin.column, error.description());
  }
  std::vector<std::string> known;
  for (const Field& field : fields) known.push_back(field.name);
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& candidate) { return candidate.name == name; });
    if (field == fields.end()) {
      fail_unknown(fmt::format("{} line {}", file, node.source().begin.line), name, known);
    }
    set(*field, file, toml_text(*field, file, node));
  }
}

std::string config_text(const std::vector<Field>& fields) {
  std::ostringstream out;
  for (const Field& field : fields) {
    out << "# " << field.help << "\n" << field.name << " = ";
    // A JSON string is a TOML basic string.
    out << (field.is_number ? field.get() : nlohmann::json(field.get()).dump()) << "\n";
  }
  return out.str();
}

}  // namespace

std::optional<std::string> read_options(int argc, const char* const* argv, const WalkFields& walk) {
  const std::vector<Field> fields = collect(walk);
  CLI::App app("Flags win over the file given by --config, which wins over the defaults.");
  app.get_formatter()->column_width(38);
  app.allow_extras();
  std::string config;
  bool print_config = false;
  app.add_option("--config", config, "TOML file of these options")->type_name("FILE");
  app.add_flag("--print-config", print_config, "print all options as TOML and end");

  // Flags are kept as text until the file has been read, whatever their order on the line.
  std::map<std::string, std::string> given;
  std::vector<std::string> known = {"--config", "--print-config", "--help"};
  for (const Field& field : fields) {
    const std::string flag = flag_of(field.name);
    known.push_back(flag);
    std::string names = flag;
    if (flag != "--" + field.name) names += ",--" + field.name;
    auto* option = app.add_option_function<std::vector<std::string>>(
        names,
        [&given, &field](const std::vector<std::string>& text) {
          given[field.name] = text.empty() || text[0].empty() ? "true" : text[0];
        },
        field.help);
    option->type_name(fmt::format("[{}]", field.get()))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    option->expected(field.is_switch ? 0 : 1, 1);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    LEVIN_FAIL("base.options.value", "{}; --help lists the options", error.what());
  }
  for (const std::string& extra : app.remaining()) {
    fail_unknown("the command line", extra.substr(0, extra.find('=')), known);
  }
  if (!config.empty()) read_config(config, fields);
  for (const Field& field : fields) {
    if (const auto text = given.find(field.name); text != given.end()) {
      set(field, "the command line", text->second);
    }
  }
  if (print_config) return config_text(fields);
  return std::nullopt;
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
  for (const Field& field : collect(walk)) text[field.name] = field.get();
  return text;
}

}  // namespace detail
}  // namespace levin
