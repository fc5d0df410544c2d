#include "tools/subcommands.h"

#include <fmt/format.h>

#include <array>
#include <ostream>

#include "tools/command.h"

namespace levin::tools {
namespace {

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
    Subcommand{"help", "find a feature by its name elsewhere, as in: levin help kv cache", help},
    Subcommand{"plan", "what a program's training step costs on a device, and its memory", plan},
    Subcommand{"run", "start a program as the ranks of a group, as torchrun does", run},
    Subcommand{"test", "check that this installation trains, on all devices", test},
    Subcommand{"tokenize", "texts as tokens of a tokenizer.json, and back", tokenize},
    Subcommand{"xla", "check: a program's training step, compiled for TPUs that need not be there",
               xla},
};

}  // namespace

std::span<const Subcommand> subcommands() { return kSubcommands; }

void print_subcommands(std::ostream& out) {
  for (const Subcommand& subcommand : kSubcommands) {
    out << fmt::format("  {:<8} {}\n", subcommand.name, subcommand.help);
  }
}

}  // namespace levin::tools
