// levin config [OPTIONS OF RUN]: writes them to the file that levin run reads.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options/read_options.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/writing/output.h"
#include "tools/command.h"
#include "tools/run_options.h"

namespace levin::tools {
namespace {

constexpr const char* kAbout =
    "Writes the options of levin run to a file that it reads; asks for them when none is given.";
constexpr std::string_view kBeginning = "# written by levin config\n";

struct Question {
  std::string flag;
  std::string text;
  std::string usual;  ///< what an empty answer means
};

std::string ask(const Question& question) {
  std::cout << fmt::format("{} [{}]: ", question.text, question.usual) << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer.empty() ? question.usual : answer;
}

/// The flags that somebody would have given.
std::vector<std::string> ask_all() {
  std::vector<std::string> words;
  const auto take = [&](const Question& question) {
    const std::string answer = ask(question);
    if (!answer.empty()) words.insert(words.end(), {"--" + question.flag, answer});
    return answer;
  };
  take({"nproc-per-node", "processes on this machine (a number, cpu, gpu or auto)", "auto"});
  const std::string nodes = take({"nnodes", "machines (a number, or MIN:MAX)", "1"});
  if (nodes != "1") take({"rdzv-endpoint", "where they meet, HOST:PORT of the first", ""});
  take({"max-restarts", "maximum number of restarts of the ranks", "0"});
  take({"log-dir", "folder of the processes' logs, empty for none", ""});
  return words;
}

}  // namespace

int config(int argc, char** argv) {
  RunOptions options;
  std::string output = run_config_path();
  const auto walk = [&](FieldVisitor& field) {
    field("output", output, "file to write");
    options.fields(field);
  };
  const auto read = [&](const std::vector<std::string>& words) {
    return detail::read_options(
        words, {.program = "levin config", .about = kAbout, .error_id = "tools.config"}, walk);
  };
  detail::OptionsRead told = read({argv + std::min(argc, 1), argv + argc});
  if (told.text) {
    std::cout << *told.text;
    return 0;
  }
  told.given.erase("output");
  const bool asks = told.given.empty();
  LEVIN_CHECK(!asks || ::isatty(STDIN_FILENO) != 0, "tools.config",
              "got no option, and nobody is there to be asked; give those of levin run");
  LEVIN_CHECK(!output.empty(), "tools.config", "--output got an empty name; name a file");
  if (asks) told = read(ask_all());
  const std::filesystem::path path = files::absolute_path(output);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  LEVIN_CHECK(!error, "tools.config", "cannot make {}: {}", path.parent_path().string(),
              error.message());
  const std::string text = std::string(kBeginning) + detail::options_as_toml(walk, told.given);
  // Its own place holds what this command wrote before, or somebody has edited for levin run.
  if (path != files::absolute_path(run_config_path())) files::check_own(path, kBeginning);
  files::write_file_atomically(path, text);
  std::cout << fmt::format("{}:\n{}", path.string(), text);
  std::cout << (path == run_config_path()
                    ? "levin run reads it\n"
                    : fmt::format("levin run --config {} reads it\n", path.string()));
  return 0;
}

}  // namespace levin::tools
