#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/posix.h"
#include "levin/files/atomic.h"
#include "levin/files/read_file.h"
#include "levin/files/writing/output.h"
#include "levin/observe/loggers/append_row.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

std::string csv_field(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

std::string header_of(const std::vector<std::string>& columns) {
  std::string header;
  for (const std::string& column : columns)
    header += (header.empty() ? "" : ",") + csv_field(column);
  return header + "\n";
}

/// The columns of the header line, and where the rows begin.
std::pair<std::vector<std::string>, size_t> read_header(std::string_view text) {
  std::vector<std::string> columns(1);
  bool in_quotes = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && in_quotes && i + 1 < text.size() && text[i + 1] == '"') {
      columns.back() += text[++i];
    } else if (c == '"') {
      in_quotes = !in_quotes;
    } else if (c == ',' && !in_quotes) {
      columns.emplace_back();
    } else if (c == '\n' && !in_quotes) {
      return {columns, i + 1};
    } else {
      columns.back() += c;
    }
  }
  return {{}, 0};
}

class CsvFile {
 public:
  /// Goes on with the file there is; a row cut short by a crash of the machine is dropped.
  void open(std::string path) {
    std::string text = read(path);
    if (text.empty()) text = header_of({"step", "epoch"});
    // The check below reports a file without any line.
    if (text.find('\n') != std::string::npos) text.resize(text.rfind('\n') + 1);
    auto [columns, rows] = read_header(text);
    LEVIN_CHECK(columns.size() >= 2 && columns[0] == "step" && columns[1] == "epoch",
                "observe.logger.csv",
                "{} is not a metrics.csv of levin: its first line does not begin with step,epoch; "
                "move it away",
                path);
    replace(path, text);
    path_ = std::move(path);
    columns_ = std::move(columns);
    rows_ = std::count(text.begin() + static_cast<int64_t>(rows), text.end(), '\n');
  }

  int64_t rows() const { return rows_; }

  /// Returns how many there were more.
  int64_t keep_rows(int64_t rows) {
    if (rows_ <= rows) return 0;
    std::string text = files::read_file(path_);
    size_t end = read_header(text).second;
    for (int64_t row = 0; row < rows; ++row) end = text.find('\n', end) + 1;
    text.resize(end);
    replace(path_, text);
    return std::exchange(rows_, rows) - rows;
  }

  bool is_open() const { return static_cast<bool>(file_); }

  void add_row(const Scalars& values, int64_t epoch, int64_t step) {
    widen(values);
    std::vector<std::string> cells(columns_.size());
    cells[0] = to_text(step);
    cells[1] = to_text(epoch);
    for (const Scalar& scalar : values) cells[place(scalar.name)] = to_text(scalar.value);
    detail::append_row(file_, path_, fmt::format("{}\n", fmt::join(cells, ",")), size_);
    ++rows_;
  }

 private:
  /// A file that is there and cannot be read is not taken for a new one, which would replace it.
  static std::string read(const std::string& path) {
    std::error_code error;
    const std::filesystem::file_status there = std::filesystem::symlink_status(path, error);
    if (there.type() == std::filesystem::file_type::not_found) return "";
    LEVIN_CHECK(!std::filesystem::is_symlink(there), "observe.logger.csv",
                "{} is a symbolic link; move it away", path);
    return files::read_file(path);
  }

  size_t place(const std::string& name) const {
    return std::find(columns_.begin() + 2, columns_.end(), name) - columns_.begin();
  }

  void widen(const Scalars& values) {
    std::vector<std::string> wider = columns_;
    for (const Scalar& scalar : values) {
      if (std::find(wider.begin() + 2, wider.end(), scalar.name) == wider.end()) {
        wider.push_back(scalar.name);
      }
    }
    if (wider.size() == columns_.size()) return;
    const std::string old = files::read_file(path_);
    const std::string commas(wider.size() - columns_.size(), ',');
    std::string text = header_of(wider);
    for (size_t at = header_of(columns_).size(); at < old.size();) {
      const size_t end = std::min(old.find('\n', at), old.size());
      text.append(old, at, end - at).append(commas).append("\n");
      at = end + 1;
    }
    replace(path_, text);
    columns_ = std::move(wider);
  }

  /// Writes the file anew and opens it, so that nothing is lost when that fails.
  void replace(const std::string& path, const std::string& text) {
    files::write_file_atomically(path, text);
    posix::Descriptor file = files::open_own(path, O_WRONLY | O_APPEND);
    if (!file) detail::fail_to_write(path);
    file_ = std::move(file);
    size_ = static_cast<int64_t>(text.size());
  }

  std::string path_;
  std::vector<std::string> columns_;
  posix::Descriptor file_;
  int64_t size_ = 0;
  int64_t rows_ = 0;
};

class CsvLogger : public detail::FolderLogger {
 public:
  using FolderLogger::FolderLogger;

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override {
    directory().attempt([&] {
      open();
      Scalars named = values;
      for (Scalar& scalar : named) scalar.name = full_name(scalar.name);
      file_.add_row(named, epoch, step);
    });
  }

  State state_dict() const override {
    State state = directory().state_dict();
    if (!file_.is_open() && is_there()) directory().attempt([&] { open(); });
    // -1: the count is unknown, and a resumed run leaves the file alone.
    return std::move(state.set("rows", file_.is_open() || !is_there() ? file_.rows() : -1));
  }
  bool resume(const State& state, int64_t step) override {
    const int64_t rows = state.integer("rows");
    if (rows < 0 || !directory().resume(state)) return false;
    directory().attempt([&] {
      if (!is_there()) return;
      open();
      const int64_t cut = file_.keep_rows(rows);
      if (cut > 0) {
        log::info("{}: the run continues from step {}; removed rows from after it: {}", path(),
                  step, cut);
      }
    });
    return true;
  }

 private:
  std::string path() const { return directory().path() + "/metrics.csv"; }
  bool is_there() const {
    std::error_code error;
    return std::filesystem::exists(std::filesystem::symlink_status(path(), error));
  }
  void open() const {
    if (!file_.is_open()) file_.open(path());
  }

  mutable CsvFile file_;
};

}  // namespace

std::shared_ptr<Logger> detail::csv_logger_in(std::shared_ptr<RunDirectory> directory) {
  return std::make_shared<CsvLogger>(std::move(directory));
}

std::shared_ptr<Logger> csv_logger(LoggerOptions options) {
  return detail::csv_logger_in(std::make_shared<detail::RunDirectory>(std::move(options)));
}

}  // namespace levin
