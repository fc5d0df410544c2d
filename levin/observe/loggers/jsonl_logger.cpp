#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/posix.h"
#include "levin/base/text/utf8.h"
#include "levin/files/atomic.h"
#include "levin/files/read_file.h"
#include "levin/files/writing/output.h"
#include "levin/observe/loggers/append_row.h"
#include "levin/observe/loggers/json_rows.h"

namespace levin {
namespace detail {
namespace {

constexpr std::string_view kBeginning = "{\"step\":";

}  // namespace

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : utf8::lossy(text)) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < ' ') {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return to_text(value);
}

std::string json_row(const Scalars& values, int64_t epoch, int64_t step) {
  std::string row = fmt::format("{}{},\"epoch\":{}", kBeginning, step, epoch);
  for (const auto& [name, value] : values) {
    const bool is_taken = name == "step" || name == "epoch";
    row += fmt::format(",{}:{}", json_text(is_taken ? "value/" + name : name), json_number(value));
  }
  return row + "}\n";
}

/// Goes on with the file there is; a row cut short by a crash of the machine is dropped.
void JsonRows::open(const std::string& path) {
  if (file_) return;
  std::error_code error;
  const auto there = std::filesystem::symlink_status(path, error);
  std::string text;
  if (there.type() != std::filesystem::file_type::not_found) {
    const bool is_file = there.type() == std::filesystem::file_type::regular;
    if (is_file) text = files::read_file(path);
    LEVIN_CHECK(is_file && (text.empty() || text.starts_with(kBeginning)), "observe.logger.jsonl",
                "{} is not a metrics.jsonl of levin: it does not begin with {}; move it away", path,
                kBeginning);
  }
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  replace(path, text);
}

void JsonRows::replace(const std::string& path, const std::string& text) {
  files::write_file_atomically(path, text);
  posix::Descriptor file = files::open_own(path, O_WRONLY | O_APPEND);
  if (!file) fail_to_write(path);
  file_ = std::move(file);
  path_ = path;
  size_ = static_cast<int64_t>(text.size());
}

int64_t JsonRows::keep(int64_t bytes) {
  if (size_ <= bytes) return 0;
  std::string text = files::read_file(path_);
  const std::string_view later = std::string_view(text).substr(static_cast<size_t>(bytes));
  const auto rows = std::count(later.begin(), later.end(), '\n');
  text.resize(static_cast<size_t>(bytes));
  replace(path_, text);
  return rows;
}

void JsonRows::add(const std::string& row) { append_row(file_, path_, row, size_); }

void JsonFolderLogger::log_metrics(const Scalars& values, int64_t epoch, int64_t step) {
  directory().attempt([&] {
    rows_.open(path());
    Scalars named = values;
    for (Scalar& scalar : named) scalar.name = full_name(scalar.name);
    rows_.add(json_row(named, epoch, step));
  });
}

State JsonFolderLogger::state_dict() const {
  State state = directory().state_dict();
  std::error_code error;
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path(), error));
  if (is_there) directory().attempt([&] { rows_.open(path()); });
  // -1: the size is unknown, and a resumed run leaves the file alone.
  return std::move(state.set("bytes", rows_.is_open() || !is_there ? rows_.size() : -1));
}

bool JsonFolderLogger::resume(const State& state, int64_t step) {
  const int64_t bytes = state.integer("bytes");
  if (bytes < 0 || !directory().resume(state)) return false;
  directory().attempt([&] {
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path(), error))) return;
    rows_.open(path());
    const int64_t cut = rows_.keep(bytes);
    if (cut > 0) {
      log::info("{}: the run continues from step {}; removed rows from after it: {}", path(), step,
                cut);
    }
  });
  return true;
}

}  // namespace detail

std::shared_ptr<Logger> detail::jsonl_logger_in(std::shared_ptr<RunDirectory> directory) {
  return std::make_shared<detail::JsonFolderLogger>(std::move(directory));
}

std::shared_ptr<Logger> jsonl_logger(LoggerOptions options) {
  return detail::jsonl_logger_in(std::make_shared<detail::RunDirectory>(std::move(options)));
}

}  // namespace levin
