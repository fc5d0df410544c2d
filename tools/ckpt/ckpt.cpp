// levin ckpt inspect|verify|diff|convert|merge: looks at checkpoints and makes others of them.
#include "tools/ckpt/ckpt.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/checkpoint/merge.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace levin::tools {
namespace {

constexpr const char* kHelp =
    "usage: levin ckpt ACTION [OPTIONS] PATH...\n\n  inspect PATH          print the checkpoint's "
    "tensors, their dtypes and sizes, and the training state\n  verify PATH...        check every "
    "byte against the checksums; the exit code is 1 if one differs.\n                        For "
    "files without checksums, check that everything they list is present\n  diff ONE OTHER        "
    "print tensors and numbers that differ; the exit code is 1 if there are any\n  convert FROM TO "
    "      write the weights: to a safetensors file (TO.safetensors), in torch.save's\n            "
    "            format (TO.pt, .pth or .bin), or else to a folder as save_pretrained\n            "
    "            writes it\n  merge PART... TO      merge the parts that the hosts of a run wrote "
    "(save_on_each_node) into one\n                        checkpoint\n\nPATH is a checkpoint's "
    "folder, a folder as transformers saves it (safetensors or pytorch_model.bin,\nin one file or "
    "several), a file of safetensors or of torch.save, or a folder "
    "of\ntorch.distributed.checkpoint.\n  levin ckpt ACTION --help lists its options\n";

using Paths = std::vector<std::string>;

/// The paths that an action takes, at least so many. False: help was printed.
bool parse(CLI::App& app, int argc, char** argv, Paths& paths, const char* names, size_t least) {
  app.add_option("PATH", paths, names)->type_name("");
  if (!parse_arguments(app, argc, argv, "tools.ckpt")) return false;
  LEVIN_CHECK(paths.size() >= least, "tools.ckpt", "got {} paths, wanted {}; see {} --help",
              paths.size(), names, app.get_name());
  return true;
}

int inspect(int argc, char** argv) {
  CLI::App app("Prints the contents of a checkpoint.", "levin ckpt inspect");
  Paths paths;
  bool is_all = false, is_json = false;
  int64_t num_tensors = 20;
  app.add_option("--top", num_tensors, "number of the largest tensors to list")
      ->capture_default_str();
  app.add_flag("--all", is_all, "list all tensors by name");
  app.add_flag("--json", is_json, "print JSON");
  if (!parse(app, argc, argv, paths, "PATH", 1)) return 0;
  LEVIN_CHECK(paths.size() == 1, "tools.ckpt", "got {} paths, wanted one", paths.size());
  std::cout << inspected(paths[0], is_all ? -1 : num_tensors, is_json);
  return 0;
}

int verify(int argc, char** argv) {
  CLI::App app("Checks the bytes of checkpoints against their checksums.", "levin ckpt verify");
  Paths paths;
  if (!parse(app, argc, argv, paths, "PATH...", 1)) return 0;
  int code = 0;
  for (const std::string& path : paths) {
    try {
      std::cout << fmt::format("{}: {}\n", path, verified(path));
    } catch (const Error& error) {
      std::cout << fmt::format("{}: {}\n", path, error.what());
      code = 1;
    }
  }
  return code;
}

int diff(int argc, char** argv) {
  CLI::App app("Prints the tensors and numbers in which two checkpoints differ.",
               "levin ckpt diff");
  Paths paths;
  Tolerance tolerance;
  app.add_option("--rtol", tolerance.relative, "relative tolerance of numbers")
      ->capture_default_str();
  app.add_option("--atol", tolerance.absolute, "absolute tolerance of numbers")
      ->capture_default_str();
  if (!parse(app, argc, argv, paths, "ONE OTHER", 2)) return 0;
  LEVIN_CHECK(paths.size() == 2, "tools.ckpt", "got {} paths, wanted two", paths.size());
  const CheckpointContents one = read_contents(paths[0]), other = read_contents(paths[1]);
  check_expansion(one, paths[0]);
  check_expansion(other, paths[1]);
  const std::string found = differences(one, other, tolerance);
  std::cout << (found.empty() ? "no difference\n" : found);
  return found.empty() ? 0 : 1;
}

int convert_action(int argc, char** argv) {
  CLI::App app(
      "Writes the weights of a checkpoint to one safetensors file (TO.safetensors), to a file for "
      "torch.load and load_state_dict(strict=True) (TO.pt, TO.pth or TO.bin), or to a folder as "
      "save_pretrained of Hugging Face writes it (any other TO).",
      "levin ckpt convert");
  Paths paths;
  ConvertOptions options;
  app.add_option("--dtype", options.dtype,
                 "dtype to convert floating tensors to: float32, float16, bfloat16 or float64; "
                 "else unchanged")
      ->type_name("");
  app.add_option("--max-shard-bytes", options.max_shard_bytes,
                 "maximum size of one file of a folder")
      ->capture_default_str();
  if (!parse(app, argc, argv, paths, "FROM TO", 2)) return 0;
  LEVIN_CHECK(paths.size() == 2, "tools.ckpt", "got {} paths, wanted two", paths.size());
  convert(paths[0], paths[1], options);
  return 0;
}

int merge(int argc, char** argv) {
  CLI::App app("Merges the parts that the hosts of a run wrote into one checkpoint.",
               "levin ckpt merge");
  Paths paths;
  if (!parse(app, argc, argv, paths, "PART... TO", 2)) return 0;
  const std::filesystem::path to = paths.back();
  merge_checkpoints({paths.begin(), paths.end() - 1}, to, {.replace = false});
  std::cout << to.string() << '\n';
  return 0;
}

struct Action {
  std::string_view name;
  int (*run)(int argc, char** argv);
};
constexpr Action kActions[] = {{"inspect", inspect},
                               {"verify", verify},
                               {"diff", diff},
                               {"convert", convert_action},
                               {"merge", merge}};

}  // namespace

int ckpt(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h") {
    std::cout << kHelp;
    return argc > 1 ? 0 : 2;
  }
  const auto* const action = std::ranges::find(kActions, name, &Action::name);
  LEVIN_CHECK(action != std::end(kActions), "tools.ckpt",
              "got '{}', wanted inspect, verify, diff, convert or merge; see levin ckpt --help",
              name);
  return action->run(argc - 1, argv + 1);
}

}  // namespace levin::tools
