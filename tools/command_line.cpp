#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/options/command_words.h"

namespace levin::tools {
namespace {

void fail_unknown(const CLI::App& app, const std::string& given, const std::string& subcommand) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const auto guess = nearest(given.substr(0, given.find('=')), known);
  LEVIN_FAIL("tools." + subcommand, "no option '{}'; {}", given,
             guess ? fmt::format("did you mean '{}'?", *guess)
                   : fmt::format("levin {} --help lists them", subcommand));
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const graph::DeviceDescription& device : graph::known_devices()) {
    names.push_back(device.name);
  }
  return names;
}

/// "-n, --name TYPE [default]".
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const CLI::Formatter& as) : CLI::Formatter(as) {}

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return CLI::Formatter::make_option_name(option, is_positional);
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    if (!option->get_type_name().empty()) text += " " + option->get_type_name();
    if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
    return option->get_required() ? text + " (required)" : text;
  }
};

std::vector<detail::Flag> flags_of(const CLI::App& app) {
  std::vector<detail::Flag> flags;
  for (const CLI::Option* option : app.get_options()) {
    detail::Flag flag;
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    if (flag.names.empty()) continue;  // a positional one
    if (option->get_items_expected_max() == 0) flag.value = detail::FlagValue::kAttached;
    flags.push_back(std::move(flag));
  }
  return flags;
}

/// The words as CLI11 reads them rightly: it takes "--flag=" for a flag whose value is the next word.
std::vector<std::string> as_cli11_reads(const CLI::App& app, const std::vector<std::string>& words,
                                        const std::string& error_id) {
  std::vector<std::string> all;
  for (detail::CommandWord& word : detail::split_command_line(
           words, flags_of(app),
           {.ends_at_word = app.get_prefix_command(), .error_id = error_id})) {
    const bool is_switch =
        word.flag >= 0 && app.get_option(word.text)->get_items_expected_max() == 0;
    if (is_switch && word.value) {
      LEVIN_CHECK(!word.value->empty(), error_id,
                  "{}: got an empty value; leave out the =", word.text);
      word.text += "=" + *std::exchange(word.value, std::nullopt);
    }
    all.push_back(std::move(word.text));
    if (word.value) all.push_back(std::move(*word.value));
  }
  return all;
}

/// CLI11 takes an empty text for the number 0.
void check_numbers(const CLI::App& app, const std::string& error_id) {
  const std::vector<std::string> numbers = {"INT", "UINT", "FLOAT", "N", "ID,..."};
  for (const CLI::Option* option : app.get_options()) {
    if (std::ranges::count(numbers, option->get_type_name()) == 0) continue;
    const auto is_empty = [](const std::string& value) { return value.empty(); };
    LEVIN_CHECK(std::ranges::none_of(option->results(), is_empty), error_id,
                "{}: got '', wanted a number", option->get_name());
  }
}

}  // namespace

bool parse_arguments(CLI::App& app, int argc, char** argv, const std::string& error_id) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto* formatter = dynamic_cast<const CLI::Formatter*>(app.get_formatter().get());
  if (formatter != nullptr) app.formatter(std::make_shared<HelpFormatter>(*formatter));
  std::vector<std::string> reversed = as_cli11_reads(app, words, error_id);  // as CLI11 wants them
  std::ranges::reverse(reversed);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    LEVIN_FAIL(error_id, "{}; {} --help lists the options", error.what(), app.get_name());
  }
  check_numbers(app, error_id);
  return true;
}

std::vector<std::string> program_of(const CLI::App& app, const std::string& subcommand) {
  std::vector<std::string> command = app.remaining();
  if (command.empty()) return command;
  if (command.front() == "--") {
    command.erase(command.begin());
  } else if (command.front().starts_with('-')) {
    fail_unknown(app, command.front(), subcommand);
  }
  return command;
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, fmt::format("device: {}", fmt::join(device_names(), ", ")))
      ->capture_default_str()
      ->type_name("");
}

graph::DeviceDescription device_named(const std::string& name, const std::string& subcommand) {
  if (const auto device = graph::find_device(name)) return *device;
  const auto guess = nearest(name, device_names());
  LEVIN_FAIL("tools." + subcommand, "--device: got '{}', wanted one of {}{}", name,
             fmt::join(device_names(), ", "),
             guess ? fmt::format("; did you mean '{}'?", *guess) : "");
}

}  // namespace levin::tools
