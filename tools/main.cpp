// levin SUBCOMMAND [ARGUMENTS]: finds the subcommand in the table and hands it the rest.
#include <fmt/ranges.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/trainer/trainer.h"
#include "tools/subcommands.h"

namespace levin::tools {
namespace {

void print_help(std::ostream& out) {
  out << "usage: levin SUBCOMMAND [ARGUMENTS]\n\n";
  print_subcommands(out);
  out << "\n  --help, --version\n";
}

const Subcommand& find_subcommand(std::string_view name) {
  std::vector<std::string> names;
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.name == name) return subcommand;
    names.emplace_back(subcommand.name);
  }
  const auto guess = nearest(name, names);
  LEVIN_FAIL("tools.subcommand", "got '{}', wanted one of: {}{}", name, fmt::join(names, ", "),
             guess ? fmt::format("; did you mean '{}'?", *guess) : "");
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    print_help(std::cerr);
    return 2;
  }
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h") {
    print_help(std::cout);
    return 0;
  }
  if (name == "--version") {
    std::cout << "levin " << levin::kVersion << '\n';
    return 0;
  }
  return find_subcommand(name).run(argc - 1, argv + 1);
}

}  // namespace
}  // namespace levin::tools

int main(int argc, char** argv) {
  try {
    return levin::tools::dispatch(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "levin: " << error.what() << '\n';
    return 2;
  }
}
