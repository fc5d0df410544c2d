#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <iostream>

#include "levin/base/check.h"
#include "levin/base/text.h"

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

}  // namespace

bool parse_arguments(CLI::App& app, int argc, char** argv, const std::string& error_id) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    LEVIN_FAIL(error_id, "{}; {} --help lists the options", error.what(), app.get_name());
  }
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
  app.add_option("--device", device, fmt::format("{}", fmt::join(device_names(), ", ")))
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
