#pragma once
// RankStream: passes one rank's stdout or stderr to the console and a log file. The console gets
// complete lines, with the rank before them; the last lines are kept for the summary.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/posix.h"
#include "levin/launch/node/console.h"
#include "levin/launch/node/said_errors.h"

namespace levin::launch {

class RankStream {
 public:
  struct Options {
    int console = -1;         ///< stdout or stderr by number; -1 shows nothing
    std::string prefix = {};  ///< before each line on the console, "[rank 2] "
    std::filesystem::path file =
        {};                     ///< new, gets every byte; "stdout.2.log" if taken; empty: none
    size_t num_last_lines = 0;  ///< to keep
    /// Bytes go to the console at once. If it is a terminal the rank writes to a terminal too, so
    /// that it draws progress bars as usual.
    bool as_it_comes = false;
    int64_t rank = 0;
    SaidErrors* errors = nullptr;  ///< on stderr: those of all ranks
  };

  /// Makes a pipe or a pseudo-terminal, and the file with its folder. Throws Error "launch.log".
  RankStream(Options options, Console& console);

  /// For the rank; closed by started() once it has its copy.
  int write_end() const { return write_end_.number(); }
  void started() { write_end_.close(); }
  /// Readable when the rank has written; -1 after the end.
  int descriptor() const { return read_end_.number(); }
  /// Passes on the available bytes, without waiting for more.
  void pump();
  /// The rank has ended: passes on the rest, a last line without its newline too.
  void finish();
  std::vector<std::string> last_lines() const;
  /// The last line is an error that the console shows, from this rank or from another.
  bool ends_with_error() const { return ends_with_error_; }

 private:
  void make_ends();
  bool read_once();
  void take(std::string_view bytes);
  void show(std::string_view lines);
  std::string without_known_errors(std::string_view bytes);
  void keep(std::string_view line);

  Options options_;
  Console& console_;
  posix::Descriptor read_end_;
  posix::Descriptor write_end_;
  posix::Descriptor file_;
  std::string unfinished_;
  std::deque<std::string> last_lines_;
  bool ends_with_error_ = false;
};

}  // namespace levin::launch
