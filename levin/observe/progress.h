#pragma once
// ProgressLine: one line on a terminal that tells how far an epoch is.
// Drawn by the trainer's progress bar callback; off a terminal only one plain line an epoch.
//
//   ProgressLine line;
//   line.start("epoch 2/3", loader.size());
//   ... if (line.advance()) line.draw(logged.step_values(LogTarget::kProgressBar));  // each step
//   line.finish("epoch 2/3: val_acc=0.88");
//
//   epoch 2/3 ========-            412/938 231.4 it/s 0:02<0:02 train_loss=0.31

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/observe/logged.h"

namespace levin {

struct ProgressOptions {
  int fd = 2;                      ///< file descriptor to draw on; 2 is stderr
  double redraw_interval_s = 0.1;  ///< seconds between two drawings, at least
};

/// Not thread-safe. Errors in writing are ignored.
class LEVIN_API ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options = {});

  /// Begins `total` steps (-1: unknown), of which `done` are done already, and draws.
  void start(std::string label, int64_t total, int64_t done = 0);

  /// Counts one step and tells whether to draw now: at most every redraw_interval_s, never off a
  /// terminal. Looks at the clock in every 16th call at most where steps are short.
  bool advance() {
    ++done_;
    return --calls_to_look_ <= 0 && look();
  }

  void draw(const Scalars& values);
  /// Wipes the line, so that another can be printed; the next draw brings it back.
  void clear();
  /// Wipes the line and prints text, on a terminal or not.
  void finish(std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  bool look();
  std::string text(const Scalars& values, int64_t columns) const;

  ProgressOptions options_;
  bool terminal_;
  bool utf8_;
  std::string label_;
  int64_t total_ = -1;
  int64_t first_ = 0;  // steps done before start
  int64_t done_ = 0;
  int64_t calls_to_look_ = 0;
  int64_t calls_between_looks_ = 1;
  int64_t width_ = 0;  // columns of what stands on the terminal now
  Clock::time_point started_;
  Clock::time_point looked_;
  Clock::time_point drawn_;
};

}  // namespace levin
