#pragma once
// The table of subcommands, for main() and for `levin help`.
//
//   print_subcommands(std::cout);

#include <iosfwd>
#include <span>
#include <string_view>

namespace levin::tools {

struct Subcommand {
  std::string_view name;
  std::string_view help;
  int (*run)(int argc, char** argv);
};

std::span<const Subcommand> subcommands();
/// Prints a line for each, as `levin --help` shows them.
void print_subcommands(std::ostream& out);

}  // namespace levin::tools
