#pragma once
// ProgressLine: a progress bar on one line of a terminal, as tqdm.
// The Trainer's progress bar callback draws it. If the output is not a terminal, it prints a plain
// line every minute and one per epoch.
//
//   ProgressLine line;
//   line.start("epoch 2/3", loader.size());
//   ... if (line.advance()) line.draw(logged.step_values(LogTarget::kProgressBar));  // each step
//   line.finish("epoch 2/3: val_acc=0.88");
//
//   epoch 2/3 ========-            412/938 231.4 it/s 0:02<0:02 train_loss=0.31

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/observe/logger.h"

namespace levin {

namespace detail {
class TerminalLine;
}  // namespace detail

/// Options of a ProgressLine.
struct ProgressOptions {
  int fd = 2;                      ///< file descriptor to draw on; 2 is stderr
  double redraw_interval_s = 0.1;  ///< minimum seconds between two drawings on a terminal
  int64_t refresh_rate = 1;        ///< batches between two drawings; 0: print nothing
  bool leave = false;              ///< leave the bar of each finished epoch on the terminal
  /// Minimum seconds between two plain lines if the output is not a terminal; 0: no such lines.
  double plain_interval_s = 60;
  std::function<std::chrono::steady_clock::time_point()> now = {};  ///< another clock, for tests
};

/// A progress bar. Not thread-safe. Errors in writing are ignored.
class LEVIN_API ProgressLine {
 public:
  /// Creates a progress bar; start() draws it first. Throws Error "observe.progress" if
  /// refresh_rate is negative.
  explicit ProgressLine(ProgressOptions options = {});

  /// Begins `total` steps (-1: unknown), with `done` of them done already, and draws the line.
  void start(std::string label, int64_t total, int64_t done = 0);

  /// Counts one step and returns whether to draw now: at most every redraw_interval_s on a
  /// terminal, and every plain_interval_s elsewhere. If steps are short, it does not read the clock
  /// in each call, but at least in every 16th.
  bool advance() {
    ++done_;
    return --calls_to_look_ <= 0 && look();
  }

  /// Draws the line with these values. If the output is not a terminal, it prints a line only after
  /// advance() has returned true.
  void draw(const Scalars& values);
  /// Erases the line, so that another text can be printed; the next draw() brings it back.
  void clear();
  /// Ends the line: erases it, or leaves it on the terminal with these values (leave).
  void end(const Scalars& values);
  /// Erases the line and prints a text, on a terminal or not.
  void finish(std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  bool look();
  bool is_refreshed() const { return done_ % options_.refresh_rate == 0 || done_ == total_; }
  double interval_s() const;
  Clock::time_point now() const { return options_.now ? options_.now() : Clock::now(); }
  std::string text(const Scalars& values, int64_t columns) const;

  ProgressOptions options_;
  std::shared_ptr<detail::TerminalLine> place_;
  bool terminal_;
  bool utf8_;
  std::string label_;
  int64_t total_ = -1;
  int64_t first_ = 0;  // steps done before start()
  int64_t done_ = 0;
  int64_t calls_to_look_ = 0;
  int64_t calls_between_looks_ = 1;
  bool due_ = false;  // a plain line, if the output is not a terminal
  Clock::time_point started_;
  Clock::time_point looked_;
  Clock::time_point drawn_;
};

}  // namespace levin
