// levin run [OPTIONS] PROGRAM [ARGUMENTS]: torchrun's options for any program.
#include <ATen/Context.h>
#include <CLI/CLI.hpp>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/launch/hostfile.h"
#include "levin/launch/launch.h"
#include "levin/launch/manifest.h"
#include "tools/command.h"

namespace levin::tools {
namespace {

/// What the command line says before it is understood.
struct RunFlags {
  std::string nproc_per_node = "1", nnodes = "1", rdzv_conf, rdzv_backend = "c10d";
  std::string local_ranks_filter, hostfile, manifest;
  bool standalone = false;
};

int64_t num_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

// torchrun's words: gpu, cpu and auto.
int64_t processes_of(const std::string& text) {
  const bool by_gpu = text == "gpu" || (text == "auto" && at::hasCUDA());
  if (by_gpu) return static_cast<int64_t>(at::getNumGPUs());
  if (text == "cpu" || text == "auto") return num_cpus();
  int64_t count = 0;
  try {
    from_text(text, count);
  } catch (const Error&) {
    LEVIN_FAIL("tools.run", "--nproc-per-node: got '{}', wanted a number, cpu, gpu or auto", text);
  }
  return count;
}

/// Flags under both spellings that torchrun takes, each with its PET_ variable.
class RunParser {
 public:
  RunParser(launch::LaunchOptions& options, RunFlags& flags)
      : app_("Starts a program as the ranks of a group, watches over them and starts them again.",
             "levin run") {
    app_.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
    app_.prefix_command();
    app_.get_formatter()->column_width(34);
    add_group_flags(options, flags);
    add_meeting_flags(options, flags);
    add_output_flags(options, flags);
    add_manifest_flag(flags);
  }

  CLI::App& app() { return app_; }

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
    app_.add_option(names, value, help)->envname(variable)->type_name("");
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
    app_.add_flag("--no-python,--no_python")
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
    app_.add_flag("--standalone", flags.standalone, "one node on a free port, the default");
    app_.add_flag("--signals-from-input", options.signals_from_input)->group("");
  }

  void add_output_flags(launch::LaunchOptions& options, RunFlags& flags) {
    add("log-dir", options.log_dir, "folder for DIR/ID/attempt_N/RANK/{stdout,stderr}.log");
    add("redirects", options.redirects,
        "streams to files only: 1 stdout, 2 stderr, 3 both; R:N,...", "-r");
    add("tee", options.tee, "streams to files and to the console, likewise", "-t");
    add("local-ranks-filter", flags.local_ranks_filter, "ranks shown on the console: 0,2");
  }

  void add_manifest_flag(RunFlags& flags) {
    app_.add_flag("--print-manifest", flags.manifest)
        ->description(
            "print the files for Kubernetes and Slurm, start nothing; one of them by "
            "=pytorchjob or =sbatch");
  }

  CLI::App app_;
};

void check_flags(const RunFlags& flags, const launch::LaunchOptions& options) {
  LEVIN_CHECK(flags.rdzv_backend == "c10d" || flags.rdzv_backend == "static", "tools.run",
              "--rdzv-backend: got '{}', wanted c10d or static", flags.rdzv_backend);
  const bool meets = !options.rdzv_endpoint.empty() || options.node_rank;
  LEVIN_CHECK(flags.hostfile.empty() || !meets, "tools.run",
              "--hostfile says which nodes there are; leave out --rdzv-endpoint and --node-rank");
  LEVIN_CHECK(!flags.standalone || (options.nnodes.most == 1 && options.rdzv_endpoint.empty()),
              "tools.run", "--standalone is for one node; leave out --nnodes and --rdzv-endpoint");
}

void fail_unknown(const CLI::App& app, const std::string& given) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const auto guess = nearest(given.substr(0, given.find('=')), known);
  LEVIN_FAIL("tools.run", "no option '{}'; {}", given,
             guess ? fmt::format("did you mean '{}'?", *guess) : "levin run --help lists them");
}

// The first word that is no option of ours is the program; all after it is the program's.
std::vector<std::string> command_of(const CLI::App& app) {
  std::vector<std::string> command = app.remaining();
  const bool marked = !command.empty() && command.front() == "--";
  if (marked) command.erase(command.begin());
  if (!marked && !command.empty() && command.front().starts_with('-')) {
    fail_unknown(app, command.front());
  }
  return command;
}

int print_manifest(const std::string& kind, const launch::LaunchOptions& options) {
  const bool both = kind == "true";
  LEVIN_CHECK(both || kind == "pytorchjob" || kind == "sbatch", "tools.run",
              "--print-manifest: got '{}', wanted pytorchjob or sbatch", kind);
  if (kind != "sbatch") std::cout << launch::pytorch_job(options);
  if (both) std::cout << "\n---\n";
  if (kind != "pytorchjob") std::cout << launch::sbatch_script(options);
  return 0;
}

// A PyTorchJob sets PET_MASTER_ADDR beside PET_RDZV_ENDPOINT; the endpoint says more.
void prefer_endpoint(launch::LaunchOptions& options) {
  const char* master = std::getenv("PET_MASTER_ADDR");
  if (options.rdzv_endpoint.empty() || master == nullptr || options.master_addr != master) return;
  options.master_addr.clear();
  options.master_port.reset();
}

}  // namespace

int run(int argc, char** argv) {
  launch::LaunchOptions options;
  RunFlags flags;
  RunParser parser(options, flags);
  try {
    parser.app().parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << parser.app().help();
    return 0;
  } catch (const CLI::ParseError& error) {
    LEVIN_FAIL("tools.run", "{}; levin run --help lists the options", error.what());
  }
  options.command = command_of(parser.app());
  options.nproc_per_node = processes_of(flags.nproc_per_node);
  options.nnodes = launch::parse_node_range(flags.nnodes);
  launch::set_rendezvous_timeouts(flags.rdzv_conf, options);
  from_text(flags.local_ranks_filter, options.local_ranks_filter);
  prefer_endpoint(options);
  check_flags(flags, options);
  if (!flags.manifest.empty()) return print_manifest(flags.manifest, options);
  if (!flags.hostfile.empty()) {
    return launch::launch_on_hosts(launch::read_hostfile(flags.hostfile), options);
  }
  return launch::launch(options);
}

}  // namespace levin::tools
