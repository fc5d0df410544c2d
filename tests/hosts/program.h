#pragma once
// A whole program started by any launcher: its output, how it ends, and that nothing of it is left.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/scratch.h"

namespace levin::test {

using Words = std::vector<std::string>;
using Settings = std::map<std::string, std::string>;

/// Its output goes to files of the scratch folder, where it runs. All that it has started is found
/// by a variable that it inherits, and killed at the end.
class Program {
 public:
  /// enter is called in the new process before it becomes the program; false: it cannot.
  Program(
      const Scratch& scratch, const Words& words, const Settings& settings = {},
      const std::function<bool()>& enter = [] { return true; });
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string out() const { return get(out_); }
  std::string err() const { return get(err_); }
  /// The exit code, minus the signal that ended it, or -1000 when it goes on for too long, as soon()
  /// has it.
  int wait(double idle_s = 60);
  /// Of this program and all that it has started.
  std::vector<pid_t> alive() const;

 private:
  [[noreturn]] void become(const Scratch& scratch, const Words& words, const Settings& settings,
                           const std::function<bool()>& enter) const;

  std::string mark_;
  pid_t pid_ = -1;
  std::filesystem::path out_, err_;
};

/// That one line alone has the promised words, the last one where at_end is set.
::testing::AssertionResult says_once(const std::string& text, const std::string& promised,
                                     bool at_end);

/// An absolute path, or "" where the shell finds no such command.
std::string path_of_command(const std::string& name);

inline bool lacks_data(const Program& program) {
  return program.err().find("data.mnist.missing") != std::string::npos;
}

}  // namespace levin::test
