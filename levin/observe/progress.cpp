#include "levin/observe/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/console/terminal_line.h"
#include "levin/base/text/utf8.h"

namespace levin {
namespace {

constexpr int64_t kMostCallsBetweenLooks = 16;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Returns the line of the file descriptor. stderr has one for the process, through which log lines
/// go.
std::shared_ptr<detail::TerminalLine> line_of(int fd) {
  if (fd != STDERR_FILENO) return std::make_shared<detail::TerminalLine>(fd);
  return {&detail::TerminalLine::of_stderr(), [](detail::TerminalLine*) {}};
}

/// Follows the C library's rule. The library itself is not asked because a C++ program has not
/// called setlocale.
bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view name(value);
    for (const std::string_view utf8 : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (name.find(utf8) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

int64_t width_of(std::string_view text) { return static_cast<int64_t>(utf8::count(text)); }

std::string clipped(const std::string& text, int64_t columns) {
  int64_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!utf8::is_inner(text[i]) && ++width > columns) return text.substr(0, i);
  }
  return text;
}

std::string bar(double part, int64_t cells, bool utf8) {
  const std::string_view full = utf8 ? "\xe2\x94\x81" : "=";
  const std::string_view half = utf8 ? "\xe2\x95\xb8" : "-";
  const auto halves =
      static_cast<int64_t>(std::clamp(part, 0.0, 1.0) * 2 * static_cast<double>(cells));
  std::string text;
  for (int64_t cell = 0; cell < cells; ++cell) {
    text += halves >= 2 * cell + 2 ? full : halves == 2 * cell + 1 ? half : " ";
  }
  return text;
}

std::string clock_text(double time_s) {
  const auto whole = static_cast<int64_t>(time_s);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine(ProgressOptions options)
    : options_(std::move(options)),
      place_(line_of(options_.fd)),
      terminal_(::isatty(options_.fd) == 1),
      utf8_(locale_is_utf8()) {
  LEVIN_CHECK(options_.refresh_rate >= 0, "observe.progress",
              "got refresh_rate = {}, wanted a number of batches, or 0 to print nothing",
              options_.refresh_rate);
}

double ProgressLine::interval_s() const {
  return terminal_ ? options_.redraw_interval_s : options_.plain_interval_s;
}

void ProgressLine::start(std::string label, int64_t total, int64_t done) {
  label_ = std::move(label);
  total_ = total;
  first_ = done_ = done;
  started_ = looked_ = drawn_ = now();
  due_ = false;
  calls_between_looks_ = 1;
  const bool looks = options_.refresh_rate > 0 && (terminal_ || interval_s() > 0);
  calls_to_look_ = looks ? 1 : std::numeric_limits<int64_t>::max();
  draw({});
}

bool ProgressLine::look() {
  const auto now = this->now();
  // A tenth of the interval between looks; few calls, so that steps that turn slow are soon
  // noticed.
  const double call_s =
      std::max(seconds(now - looked_) / static_cast<double>(calls_between_looks_), 1e-9);
  calls_between_looks_ = static_cast<int64_t>(
      std::clamp(interval_s() / 10 / call_s, 1.0, static_cast<double>(kMostCallsBetweenLooks)));
  calls_to_look_ = calls_between_looks_;
  looked_ = now;
  due_ = seconds(now - drawn_) >= interval_s();
  if (!due_ || is_refreshed()) return due_;
  calls_to_look_ = 1;  // until the next batch that is drawn
  return due_ = false;
}

void ProgressLine::draw(const Scalars& values) {
  if (options_.refresh_rate == 0 || (!terminal_ && !due_)) return;
  due_ = false;
  drawn_ = now();
  if (!terminal_) return place_->print(text(values, /*columns=*/0) + "\n");
  const int64_t columns = place_->columns();
  std::string line = clipped(text(values, columns), columns);
  const int64_t width = width_of(line);
  place_->draw(std::move(line), width);
}

std::string ProgressLine::text(const Scalars& values, int64_t columns) const {
  std::string text = label_;
  const int64_t cells = columns >= 79 ? 20 : columns >= 49 ? 10 : 0;
  if (total_ > 0 && cells > 0) {
    text += " " + bar(static_cast<double>(done_) / static_cast<double>(total_), cells, utf8_);
  }
  text += total_ >= 0 ? fmt::format(" {}/{}", done_, total_) : fmt::format(" {}", done_);
  const double time_s = seconds(drawn_ - started_);
  const auto steps = static_cast<double>(done_ - first_);
  const double rate = steps > 0 ? steps / std::max(time_s, 1e-9) : 0;
  if (rate >= 1) text += fmt::format(" {:.1f} it/s", rate);
  if (rate > 0 && rate < 1) text += fmt::format(" {:.2f} s/it", 1 / rate);
  text += " " + clock_text(time_s);
  if (rate > 0 && total_ >= done_) {
    text += "<" + clock_text(static_cast<double>(total_ - done_) / rate);
  }
  for (const Scalar& scalar : values) text += fmt::format(" {}={:.4g}", scalar.name, scalar.value);
  return text;
}

void ProgressLine::clear() { place_->wipe(); }

void ProgressLine::end(const Scalars& values) {
  if (!terminal_ || !options_.leave || options_.refresh_rate == 0) return clear();
  drawn_ = now();
  place_->print(clipped(text(values, place_->columns()), place_->columns()) + "\n");
}

void ProgressLine::finish(std::string_view text) {
  if (options_.refresh_rate > 0) place_->print(std::string(text) + "\n");
}

}  // namespace levin
