#pragma once
// TerminalLine: the one line of a terminal that is drawn over and over, as a progress bar is. Whatever
// else is written there wipes it first, so that no log line is glued to it; the next drawing brings it
// back.
//
//   TerminalLine& line = TerminalLine::of_stderr();
//   line.draw("epoch 1 3/10", 12);
//   line.print("levin warn: ...\n");

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::detail {

/// For any thread. Errors in writing are ignored: a closed terminal cannot be helped.
class LEVIN_API TerminalLine {
 public:
  explicit TerminalLine(int fd) : fd_(fd) {}
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  /// The process's, which log lines go through.
  static TerminalLine& of_stderr();

  /// Returns the columns in which a line may be drawn; asked at each drawing, so that it follows a
  /// change without a signal handler. The last column stays free: a character there makes some
  /// terminals begin a new line.
  int64_t columns() const;
  /// Replaces the drawn line; width: its columns, columns() at most.
  void draw(std::string line, int64_t width);
  /// Wipes it and writes whole lines, in one call.
  void print(std::string_view text);
  void wipe() { print(""); }

 private:
  int fd_;
  std::mutex mutex_;
  int64_t width_ = 0;  // columns of what stands there now
};

}  // namespace levin::detail
