#include "tools/run_parser.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "levin/base/reading/regular_file.h"

namespace levin::tools {
namespace {

constexpr const char* kRun =
    "Starts a program as the ranks of a group, watches over them and starts them again. An option "
    "is "
    "taken from its variable too: --nnodes from PET_NNODES.";
constexpr const char* kConfig =
    "Writes the options of levin run to a file that it reads; asks for them when none is given.";

/// Before CLI11 opens it, which would wait for the writer of a pipe; "" for what it may open.
std::string reason_not_a_file(const std::string& path) {
  std::error_code unknown;
  std::string why;
  const bool may_open = !std::filesystem::exists(path, unknown) || posix::is_open_stream(path) ||
                        posix::open_regular(path, why).has_value();
  return may_open ? "" : fmt::format("cannot read '{}': {}", path, why);
}

class RunParser {
 public:
  RunParser(launch::LaunchOptions& options, RunFlags& flags, const std::string& subcommand)
      : app_(std::make_unique<CLI::App>(subcommand == "run" ? kRun : kConfig,
                                        "levin " + subcommand)) {
    if (subcommand == "run") {
      app_->get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
      app_->prefix_command();
      app_->set_config("--config", run_config_path().string(), "file that `levin config` wrote")
          ->type_name("")
          ->check(reason_not_a_file);
    }
    app_->get_formatter()->column_width(34);
    app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as torchrun
    app_->option_defaults()->group("Ranks");
    add_group_flags(options, flags);
    app_->option_defaults()->group("Where nodes meet");
    add_meeting_flags(options, flags);
    app_->option_defaults()->group("Output");
    add_output_flags(options, flags);
    app_->option_defaults()->group("Files for Kubernetes and Slurm");
    if (subcommand == "run") add_manifest_flags(flags);
    app_->option_defaults()->group("Options");
  }

  std::unique_ptr<CLI::App> take() { return std::move(app_); }

 private:
  template <class T>
  void add(const std::string& name, T& value, const std::string& help,
           const char* short_name = "") {
    std::string under = name, variable = "PET_" + name;
    std::replace(under.begin(), under.end(), '-', '_');
    std::replace(variable.begin(), variable.end(), '-', '_');
    std::transform(variable.begin(), variable.end(), variable.begin(), ::toupper);
    std::string names = short_name;
    names += (names.empty() ? "--" : ",--") + name;
    if (under != name) names += ",--" + under;
    app_->add_option(names, value, help)->envname(variable)->type_name("");
  }

  void add_group_flags(launch::LaunchOptions& options, RunFlags& flags) {
    add("nproc-per-node", flags.nproc_per_node, "ranks on this node: a number, cpu, gpu, auto",
        "-n");
    add("nnodes", flags.nnodes, "number of nodes, or MIN:MAX");
    add("max-restarts", options.max_restarts, "how often a group that failed starts again");
    add("shutdown-timeout", options.shutdown_timeout_s,
        "seconds for ranks to save after SIGTERM before they are killed");
    add("failure-timeout", options.failure_timeout_s,
        "seconds for the other ranks to end when one has failed");
    add("numa-binding", options.numa_binding,
        "CPUs of a rank: none, node, socket, core-complex, exclusive");
    app_->add_flag("--no-python,--no_python")
        ->description("taken as torchrun does: programs are run as they are");
  }

  void add_meeting_flags(launch::LaunchOptions& options, RunFlags& flags) {
    add("node-rank", options.node_rank, "place of this node; left out: in the order they come");
    add("rdzv-endpoint", options.rdzv_endpoint, "HOST[:PORT] where several nodes meet");
    add("rdzv-id", options.rdzv_id, "name of the job, the same on all nodes");
    add("rdzv-conf", flags.rdzv_conf, "join_timeout=S,last_call_timeout=S,node_timeout=S");
    add("rdzv-backend", flags.rdzv_backend, "c10d or static: both are one here");
    add("master-addr", options.master_addr, "host of node 0, in place of --rdzv-endpoint");
    add("master-port", options.master_port, "its port; left out on one node: a free one");
    add("monitor-interval", options.monitor_interval_s, "seconds between looks at other nodes");
    add("hostfile", flags.hostfile, "lines of HOST slots=N; a launcher on each is started by ssh");
    app_->add_flag("--standalone", flags.standalone, "one node on a free port, the default");
    app_->add_flag("--token-from-input", options.token_from_input)->group("");
    app_->add_flag("--signals-from-input", options.signals_from_input)->group("");
  }

  void add_output_flags(launch::LaunchOptions& options, RunFlags& flags) {
    add("log-dir", options.log_dir, "folder for DIR/ID/attempt_N/RANK/{stdout,stderr}.log");
    add("redirects", options.redirects,
        "streams to files only: 1 stdout, 2 stderr, 3 both; R:N,...", "-r");
    add("tee", options.tee, "streams to files and to the console, likewise", "-t");
    add("local-ranks-filter", flags.local_ranks_filter, "ranks shown on the console: 0,2");
  }

  void add_manifest_flags(RunFlags& flags) {
    app_->add_flag("--print-manifest", flags.manifest)
        ->description(
            "print the files for Kubernetes and Slurm, start nothing; one of them by "
            "=pytorchjob, =jobset or =sbatch");
    launch::ManifestOptions& manifest = flags.manifest_options;
    app_->add_option("--image", manifest.image, "in them: the image with levin and the program")
        ->type_name("");
    app_->add_flag("--gpus", manifest.gpus, "in them: a GPU for each rank");
    app_->add_option("--tpu-topology", manifest.tpu_topology,
                     "in them: a slice of TPUs, v5e:4x4, in place of --nnodes and -n")
        ->type_name("");
  }

  std::unique_ptr<CLI::App> app_;
};

}  // namespace

std::filesystem::path run_config_path() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != 0) {
    return std::filesystem::path(folder) / "levin" / "run.toml";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".config" / "levin" / "run.toml";
}

std::unique_ptr<CLI::App> make_run_parser(launch::LaunchOptions& options, RunFlags& flags,
                                          const std::string& subcommand) {
  return RunParser(options, flags, subcommand).take();
}

}  // namespace levin::tools
