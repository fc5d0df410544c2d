#pragma once
// ProgressLine: one line on a terminal that tells how far an epoch is.
// Drawn by the trainer's progress bar callback; off a terminal a plain line a minute and one an epoch.
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

struct ProgressOptions {
  int fd = 2;                      ///< file descriptor to draw on; 2 is stderr
  double redraw_interval_s = 0.1;  ///< seconds between two drawings, at least
  double plain_interval_s = 60;    ///< the same off a terminal, where each is a line; 0: no lines
  std::function<std::chrono::steady_clock::time_point()> now = {};  ///< another clock, for tests
};

/// Not thread-safe. Errors in writing are ignored.
class LEVIN_API ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options = {});

  /// Begins `total` steps (-1: unknown), of which `done` are done already, and draws.
  void start(std::string label, int64_t total, int64_t done = 0);

  /// Counts one step and tells whether to draw now: at most every redraw_interval_s, off a terminal
  /// every plain_interval_s. Looks at the clock in every 16th call at most where steps are short.
  bool advance() {
    ++done_;
    return --calls_to_look_ <= 0 && look();
  }

  /// Off a terminal only where advance() has said so.
  void draw(const Scalars& values);
  /// Wipes the line, so that another can be printed; the next draw brings it back.
  void clear();
  /// Wipes the line and prints text, on a terminal or not.
  void finish(std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  bool look();
  double interval_s() const;
  Clock::time_point now() const { return options_.now ? options_.now() : Clock::now(); }
  std::string text(const Scalars& values, int64_t columns) const;

  ProgressOptions options_;
  std::shared_ptr<detail::TerminalLine> place_;
  bool terminal_;
  bool utf8_;
  std::string label_;
  int64_t total_ = -1;
  int64_t first_ = 0;  // steps done before start
  int64_t done_ = 0;
  int64_t calls_to_look_ = 0;
  int64_t calls_between_looks_ = 1;
  bool due_ = false;  // a line off a terminal
  Clock::time_point started_;
  Clock::time_point looked_;
  Clock::time_point drawn_;
};

}  // namespace levin
