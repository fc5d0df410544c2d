// levin export PROGRAM [ARGUMENTS] --ckpt-path best -o net.pt2: the module of a Trainer's program as a program
// of torch.export.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/trainer/callbacks/export_program.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/program_run.h"

namespace levin::tools {
namespace {

constexpr const char* kExportHelp =
    "Writes predict_step of a program's module as a program of torch.export. Python's "
    "torch.export.load opens it for torch.onnx.export, AOTInductor and ExecuTorch.\nPROGRAM trains "
    "with a Trainer (`./train`, or `./train fit` of levin::cli). Its options may follow; put them "
    "after `--` if they have the names of the options below. The program loads the checkpoint, "
    "takes the first batch of its training data as the example, writes the file and ends without "
    "training.";

/// The program reads --dynamic; mistakes in it are said here, before the program starts.
std::string joined(const std::vector<std::string>& dims) {
  std::string all;
  for (const std::string& each : dims) {
    detail::dynamic_dims(each);
    all += (all.empty() ? "" : ";") + each;
  }
  return all;
}

/// The program and its arguments, without the `--` between its options and those of this command.
std::vector<std::string> program_in(const CLI::App& app) {
  std::vector<std::string> command = program_of(app, "export");
  LEVIN_CHECK(!command.empty(), "tools.export",
              "got no program, wanted a program that trains with a Trainer, and its arguments");
  if (app.remaining().front() != "--") {
    const auto ending = std::ranges::find(command, "--");
    if (ending != command.end()) command.erase(ending);
  }
  return command;
}

}  // namespace

int export_module(int argc, char** argv) {
  CLI::App app(kExportHelp, "levin export");
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
  app.allow_extras();
  std::string output = "net.pt2";
  std::optional<std::string> ckpt_path;
  std::vector<std::string> dims;
  bool training = false;
  app.add_option("-o,--output", output, "file to write")->capture_default_str();
  app.add_option("--ckpt-path", ckpt_path,
                 "checkpoint of the weights: a folder, `last` or `best`; '': the weights that the "
                 "program initializes; unset: the program's own --ckpt-path, or `last`");
  app.add_option("--dynamic", dims,
                 "INPUT:DIM[:min=N][:max=N][:multiple_of=N][:name=TEXT]: a dynamic dimension, "
                 "whose size may differ from the example's; give --dynamic once for each, or "
                 "`none`; unset: dim 0 of all inputs, the batch")
      ->allow_extra_args(false);
  app.add_flag("--train", training,
               "export in training mode, with dropout, instead of evaluation mode");
  if (!parse_arguments(app, argc, argv, "tools.export")) return 0;
  const std::vector<std::string> command = program_in(app);
  std::error_code error;
  const std::filesystem::path file = std::filesystem::absolute(output, error);
  LEVIN_CHECK(
      !std::filesystem::is_directory(file, error) &&
          std::filesystem::is_directory(file.parent_path(), error),
      "tools.export",
      "-o '{}' is a folder, or its folder does not exist; name a file in an existing folder",
      output);
  const auto before = std::filesystem::last_write_time(file, error);
  const bool was_there = !error;
  Variables variables = {{"LEVIN_EXPORT_TO", file.string()}};
  if (ckpt_path) variables.emplace_back("LEVIN_EXPORT_CKPT", *ckpt_path);
  if (!dims.empty()) variables.emplace_back("LEVIN_EXPORT_DYNAMIC", joined(dims));
  if (training) variables.emplace_back("LEVIN_EXPORT_TRAINING", "1");
  run_program(command, variables, output);
  const auto after = std::filesystem::last_write_time(file, error);
  LEVIN_CHECK(!error && (!was_there || after != before), "tools.program",
              "'{}' ended and wrote no {}, because it did not call fit of a Trainer; give a "
              "program that trains with a Trainer, or call levin::export_program in it",
              command[0], output);
  std::cout << output << "\n";
  return 0;
}

}  // namespace levin::tools
