#include "tools/subcommands.h"

#include <fmt/format.h>

#include <array>
#include <ostream>

#include "tools/command.h"

namespace levin::tools {
namespace {

constexpr std::array kSubcommands = {
    Subcommand{"ckpt", "inspect, verify, compare, convert and merge checkpoints", ckpt},
    Subcommand{"config", "write options of levin run to the file that levin run reads", config},
    Subcommand{"env", "print versions, the machine and the optional parts of the build", env},
    Subcommand{
        "export",
        "write a program's module as a torch.export program, from which PyTorch makes ONNX files",
        export_module},
    Subcommand{"finetune", "train a pretrained model, or an adapter for it, on the rows of a file",
               finetune},
    Subcommand{"generate", "generate text with a pretrained model, or chat with it", generate},
    Subcommand{"graph", "print the graph of a program's training step: text, Graphviz or a page",
               graph},
    Subcommand{"help",
               "find a feature by its name in another framework, for example: levin help kv cache",
               help},
    Subcommand{"plan", "print the time and memory of a program's training step on a device", plan},
    Subcommand{"run", "start a program as the ranks of a group, as torchrun does", run},
    Subcommand{"test", "check that this installation trains, on all devices", test},
    Subcommand{"tokenize", "encode texts with a tokenizer.json, and decode ids", tokenize},
    Subcommand{"xla", "xla check compiles a program's training step for TPUs; no TPU is needed",
               xla},
};

}  // namespace

std::span<const Subcommand> subcommands() { return kSubcommands; }

void print_subcommands(std::ostream& out) {
  for (const Subcommand& subcommand : kSubcommands) {
    out << fmt::format("  {:<9} {}\n", subcommand.name, subcommand.help);
  }
}

}  // namespace levin::tools
