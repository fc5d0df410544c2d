#pragma once
// Programs that a subcommand starts to ask something of them, by variables of their environment.
//
//   const TemporaryFolder folder;
//   run_program({"./train", "--layers", "12"}, {{"LEVIN_GRAPH_TO", file}}, "its graph");

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace levin::tools {

/// Removed with all in it at its end. Throws Error "tools.program" where there is no place for it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Runs the command to its end with these variables in place of those of its environment. What it prints goes
/// to the error stream. Throws Error "tools.program" where it cannot be started or fails before it has written
/// `what`.
void run_program(std::vector<std::string> command, const Variables& variables,
                 const std::string& what);

}  // namespace levin::tools
