#include "tools/program_run.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "levin/base/check.h"
#include "levin/comm/environment/variables.h"
#include "levin/files/folder.h"

namespace levin::tools {
namespace {

/// Null-terminated, as exec takes them; points into the words.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view each(*variable);
    const std::string_view name = each.substr(0, each.find('='));
    const bool is_replaced =
        std::ranges::any_of(variables, [&](const auto& other) { return other.first == name; });
    if (!is_replaced) all.emplace_back(each);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

pid_t start(std::vector<std::string> command, const Variables& variables) {
  std::vector<std::string> environment_words = environment_with(variables);
  const std::vector<char*> arguments = pointers_to(command),
                           environment = pointers_to(environment_words);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  LEVIN_CHECK(error == 0, "tools.program",
              "cannot start '{}': {}; give the path of a program, or the name of one in PATH",
              command[0], std::generic_category().message(error));
  return child;
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path_(files::temporary_folder() / "levin_graph_XXXXXX") {
  LEVIN_CHECK(::mkdtemp(path_.data()) != nullptr, "tools.program",
              "cannot make {}: {}; set TMPDIR to a folder that can be written", path_,
              std::generic_category().message(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void run_program(std::vector<std::string> command, const Variables& variables,
                 const std::string& what) {
  LEVIN_CHECK(!command.empty(), "tools.program",
              "got no program, wanted a program and its arguments; --help has an example");
  const std::string program = command.front();
  const pid_t child = start(std::move(command), variables);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  LEVIN_CHECK(!WIFSIGNALED(status), "tools.program",
              "'{}' was killed by signal {} before it wrote {}; see its output above", program,
              WTERMSIG(status), what);
  LEVIN_CHECK(WEXITSTATUS(status) == 0, "tools.program",
              "'{}' ended with code {}, wanted 0; see its output above", program,
              WEXITSTATUS(status));
}

}  // namespace levin::tools
