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
    "usage: levin ckpt ACTION [OPTIONS] PATH...\n\n"
    "  inspect PATH          what is in it: tensors, their types and sizes, the training state\n"
    "  verify PATH...        whether each byte is as it was written; the code is 1 where it is "
    "not. Of\n"
    "                        files without checksums: whether they hold all that they tell of\n"
    "  diff ONE OTHER        tensors and numbers in which two differ; the code is 1 where some do\n"
    "  convert FROM TO       the weights to TO.safetensors, as torch.save to TO.pt, .pth or .bin, "
    "else to\n"
    "                        a folder as save_pretrained's\n"
    "  merge PART... TO      one checkpoint of what the hosts of a run wrote "
    "(save_on_each_node)\n\n"
    "PATH is a checkpoint's folder, a folder as transformers saves it (safetensors or "
    "pytorch_model.bin,\n"
    "in one file or several), a file of safetensors or of torch.save, or a folder of\n"
    "torch.distributed.checkpoint.\n"
    "  levin ckpt ACTION --help lists its options\n";

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
  CLI::App app("What is in a checkpoint.", "levin ckpt inspect");
  Paths paths;
  bool is_all = false, is_json = false;
  int64_t num_tensors = 20;
  app.add_option("--top", num_tensors, "how many of the largest tensors to name")
      ->capture_default_str();
  app.add_flag("--all", is_all, "all tensors, by name");
  app.add_flag("--json", is_json, "for other programs to read");
  if (!parse(app, argc, argv, paths, "PATH", 1)) return 0;
  LEVIN_CHECK(paths.size() == 1, "tools.ckpt", "got {} paths, wanted one", paths.size());
  std::cout << inspected(paths[0], is_all ? -1 : num_tensors, is_json);
  return 0;
}

int verify(int argc, char** argv) {
  CLI::App app("Whether each byte of checkpoints is as it was written.", "levin ckpt verify");
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
  CLI::App app("Tensors and numbers in which two checkpoints differ.", "levin ckpt diff");
  Paths paths;
  Tolerance tolerance;
  app.add_option("--rtol", tolerance.relative, "numbers may differ by this much of their size")
      ->capture_default_str();
  app.add_option("--atol", tolerance.absolute, "and by this much")->capture_default_str();
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
      "The weights of a checkpoint in one file of safetensors (TO.safetensors), in one that "
      "torch.load and "
      "load_state_dict(strict=True) take (TO.pt, TO.pth or TO.bin), or in a folder as Hugging "
      "Face's "
      "save_pretrained writes it (any other TO).",
      "levin ckpt convert");
  Paths paths;
  ConvertOptions options;
  app.add_option("--dtype", options.dtype,
                 "of floating tensors: float32, float16, bfloat16 or float64; else as they are")
      ->type_name("");
  app.add_option("--max-shard-bytes", options.max_shard_bytes, "of one file of a folder")
      ->capture_default_str();
  if (!parse(app, argc, argv, paths, "FROM TO", 2)) return 0;
  LEVIN_CHECK(paths.size() == 2, "tools.ckpt", "got {} paths, wanted two", paths.size());
  convert(paths[0], paths[1], options);
  return 0;
}

int merge(int argc, char** argv) {
  CLI::App app("One checkpoint of what the hosts of a run wrote of it.", "levin ckpt merge");
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
              "got '{}', wanted inspect, verify, diff, convert or merge; levin ckpt --help", name);
  return action->run(argc - 1, argv + 1);
}

}  // namespace levin::tools
