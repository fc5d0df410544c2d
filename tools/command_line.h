#pragma once
// The command line of a subcommand that takes a program: its own options, then the program's.
//
//   levin plan --top 5 ./train --lr 0.1

#include <string>
#include <vector>

#include "levin/graph/passes/passes.h"

namespace CLI {
class App;
}  // namespace CLI

namespace levin::tools {

/// False: help was asked for, and has been printed. Throws Error with the id for what the parser
/// does not take. An empty value, "--flag=" or '', is the empty text, and of a number an error.
bool parse_arguments(CLI::App& app, int argc, char** argv, const std::string& error_id);

/// The program and its arguments: what the parser has left over. Throws Error "tools." with the
/// subcommand's name for an option in place of the program.
std::vector<std::string> program_of(const CLI::App& app, const std::string& subcommand);

/// --device, one of graph::known_devices().
void add_device_option(CLI::App& app, std::string& device);
/// Throws Error "tools." with the subcommand's name for one that is not known.
graph::DeviceDescription device_named(const std::string& name, const std::string& subcommand);

}  // namespace levin::tools
