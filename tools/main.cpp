// levin SUBCOMMAND [ARGUMENTS]: finds the subcommand in a table and hands it the rest.
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/trainer/version.h"
#include "tools/command.h"

namespace levin::tools {
namespace {

struct Subcommand {
  std::string_view name;
  std::string_view help;
  int (*run)(int argc, char** argv);
};

constexpr std::array kSubcommands = {
    Subcommand{"ckpt", "inspect, verify, compare, convert and merge checkpoints", ckpt},
    Subcommand{"config", "write the options of run to a file that it reads", config},
    Subcommand{"env", "versions, the machine, and which optional parts are there", env},
    Subcommand{"export", "a program's module for Python: torch.export, and from there ONNX",
               export_module},
    Subcommand{"finetune", "train a pretrained model, or an adapter for it, on the rows of a file",
               finetune},
    Subcommand{"generate", "a model of a folder writes on from prompts, or chats", generate},
    Subcommand{"graph", "the graph of a program's training step: text, Graphviz or a page", graph},
    Subcommand{"plan", "what a program's training step costs on a device, and its memory", plan},
    Subcommand{"run", "start a program as the ranks of a group, as torchrun does", run},
    Subcommand{"test", "check that this installation trains, on all devices", test},
    Subcommand{"tokenize", "texts as tokens of a tokenizer.json, and back", tokenize},
    Subcommand{"xla", "check: a program's training step, compiled for TPUs that need not be there",
               xla},
};

void print_help(std::ostream& out) {
  out << "usage: levin SUBCOMMAND [ARGUMENTS]\n\n";
  for (const Subcommand& subcommand : kSubcommands) {
    out << fmt::format("  {:<8} {}\n", subcommand.name, subcommand.help);
  }
  out << "\n  --help, --version\n";
}

const Subcommand& find_subcommand(std::string_view name) {
  std::vector<std::string> names;
  for (const Subcommand& subcommand : kSubcommands) {
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
