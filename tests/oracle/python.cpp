#include "tests/oracle/python.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace levin::test {

PythonScripts::PythonScripts(const std::string& python) {
  const std::string script = source_dir() + "/tests/oracle/run_scripts.py";
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(to[0], STDIN_FILENO);
    ::dup2(from[1], STDOUT_FILENO);
    ::execl(python.c_str(), python.c_str(), script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  requests_ = ::fdopen(to[1], "w");
  answers_ = ::fdopen(from[0], "r");
}

PythonScripts::~PythonScripts() {
  if (requests_ != nullptr) std::fclose(requests_);
  if (answers_ != nullptr) std::fclose(answers_);
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
}

int PythonScripts::run(const std::string& script, const std::string& arguments,
                       const std::filesystem::path& output) {
  int code = 0;
  const bool answered = requests_ != nullptr && answers_ != nullptr &&
                        std::fprintf(requests_, "%s\n%s\n%s\n", script.c_str(), arguments.c_str(),
                                     output.c_str()) > 0 &&
                        std::fflush(requests_) == 0 && std::fscanf(answers_, "%d", &code) == 1;
  if (answered) return code;
  std::ofstream(output, std::ios::app) << "run_scripts.py ended without an answer\n";
  return 127;
}

}  // namespace levin::test
