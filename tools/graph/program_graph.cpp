#include "tools/graph/program_graph.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/files/folder.h"

namespace levin::tools {
namespace {

constexpr std::string_view kGraphTo = "LEVIN_GRAPH_TO=";
constexpr std::string_view kLogsTo = "LEVIN_LOGS_TO=";

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(files::temporary_folder() / "levin_graph_XXXXXX") {
    LEVIN_CHECK(::mkdtemp(path_.data()) != nullptr, "tools.program",
                "cannot make {}: {}; set TMPDIR to a folder that can be written", path_,
                std::generic_category().message(errno));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

/// Null-terminated, as exec takes them; points into the words.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// The program writes its graph there, and into the same folder what it logs until then.
std::vector<std::string> environment_with(const std::filesystem::path& graph_file) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view each(*variable);
    if (!each.starts_with(kGraphTo) && !each.starts_with(kLogsTo)) variables.emplace_back(each);
  }
  variables.push_back(std::string(kGraphTo) + graph_file.string());
  variables.push_back(std::string(kLogsTo) + (graph_file.parent_path() / "logs").string());
  return variables;
}

pid_t start(std::vector<std::string> command, const std::filesystem::path& graph_file,
            bool for_xla) {
  std::vector<std::string> variables = environment_with(graph_file);
  if (for_xla) variables.emplace_back("LEVIN_GRAPH_FOR_XLA=1");
  const std::vector<char*> arguments = pointers_to(command), environment = pointers_to(variables);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  LEVIN_CHECK(error == 0, "tools.program",
              "cannot start '{}': {}; give the path of a program, or one that PATH finds",
              command[0], std::generic_category().message(error));
  return child;
}

void wait_for(pid_t child, const std::string& program) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  LEVIN_CHECK(!WIFSIGNALED(status), "tools.program",
              "'{}' was ended by signal {} before it had written its graph; see what it said above",
              program, WTERMSIG(status));
  LEVIN_CHECK(WEXITSTATUS(status) == 0, "tools.program",
              "'{}' ended with code {}, wanted 0; see what it said above", program,
              WEXITSTATUS(status));
}

/// In a group of batches the gradients so far are inputs, "gradient of net.0.weight", which the
/// step adds to: what it leaves there is a gradient of the parameter like any other.
void name_gradients(graph::Graph& graph) {
  constexpr std::string_view kPrefix = "gradient of ";
  std::unordered_map<std::string_view, graph::Value*> state;
  for (const graph::Node* node : graph.find_nodes(graph::Opcode::kGetAttr)) {
    state[node->name()] = &node->output();
  }
  std::vector<graph::Update> updates = graph.updates();
  for (graph::Update& update : updates) {
    const std::string_view name = update.target->node().name();
    if (update.is_gradient || !name.starts_with(kPrefix)) continue;
    const auto parameter = state.find(name.substr(kPrefix.size()));
    if (parameter == state.end()) continue;
    update = {.target = parameter->second, .value = update.value, .is_gradient = true};
  }
  graph.set_updates(updates);
}

graph::GraphModule load(const std::filesystem::path& file) {
  graph::GraphModule step = graph::GraphModule::load(file);
  name_gradients(step.graph());
  return step;
}

bool is_graph_file(const std::vector<std::string>& command) {
  return command.size() == 1 && command[0].ends_with(".safetensors");
}

}  // namespace

graph::GraphModule program_graph(const std::vector<std::string>& command, bool for_xla) {
  LEVIN_CHECK(!command.empty(), "tools.program",
              "got no program, wanted one and its arguments, or a graph's .safetensors file");
  if (is_graph_file(command)) return load(command[0]);
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "step.safetensors";
  wait_for(start(command, file, for_xla), command[0]);
  std::error_code error;
  LEVIN_CHECK(std::filesystem::exists(file, error), "tools.program",
              "'{}' ended and wrote no graph: it made no two steps by a Trainer or by an optimizer "
              "that Accelerator::prepare gave; let one of them make its steps, or save a "
              "graph::GraphModule and give its .safetensors file",
              command[0]);
  return load(file);
}

}  // namespace levin::tools
