#include "tools/run_options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options/option_group.h"

namespace levin::tools {
namespace {

/// Hands on options that take a value with torchrun's variable: PET_NNODES for nnodes.
class WithVariables final : public FieldVisitor {
 public:
  explicit WithVariables(FieldVisitor& to) : to_(to) {}

 private:
  void visit(Field field) override {
    if (!field.is_switch && !field.name.empty()) {
      field.variable = "PET_" + field.name;
      std::ranges::transform(field.variable, field.variable.begin(), ::toupper);
    }
    to_.take(std::move(field));
  }

  FieldVisitor& to_;
};

}  // namespace

void RunOptions::fields(FieldVisitor& to) {
  WithVariables field(to);
  option_group(field, "ranks");
  field("nproc_per_node", nproc_per_node, "number of ranks on this node: N, cpu, gpu or auto", "n");
  launch.fields(field);
  option_group(field, "ranks");
  field("no_python", no_python,
        "accepted for torchrun's sake, has no effect: every program is run as it is");
  option_group(field, "rendezvous");
  field("rdzv_backend", rdzv_backend, "c10d or static; both have the same effect");
  field("hostfile", hostfile,
        "file with lines of HOST slots=N; ssh starts a launcher on each host");
  field("standalone", standalone,
        "accepted for torchrun's sake: without rendezvous options, one node and a free port are "
        "used anyway");
  option_group(field, "");
}

void ManifestFlags::fields(FieldVisitor& field) {
  option_group(field, "files for Kubernetes and Slurm");
  field.take({.name = "print_manifest",
              .help = "print the files for Kubernetes and Slurm and start nothing; =pytorchjob, "
                      "=jobset or =sbatch prints one of them",
              .is_switch = true,
              .get = [this] { return print_manifest; },
              .set =
                  [this](std::string_view text) {
                    LEVIN_CHECK(!text.empty(), "tools.run",
                                "--print-manifest: got '', wanted pytorchjob, jobset or sbatch");
                    print_manifest = text;
                  }});
  field("image", options.image,
        "container image to write into the files; it has levin and the program in it");
  field("gpus", options.gpus, "request a GPU for each rank");
  field("tpu_topology", options.tpu_topology,
        "TPU slice to request, for example v5e:4x4; replaces --nnodes and -n");
  option_group(field, "");
}

std::filesystem::path run_config_path() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != 0) {
    return std::filesystem::path(folder) / "levin" / "run.toml";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".config" / "levin" / "run.toml";
}

}  // namespace levin::tools
