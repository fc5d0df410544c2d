#pragma once
// JSON lines: the file metrics.jsonl, and the logger that writes it. Not for users.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "levin/base/posix.h"
#include "levin/observe/run_directory_impl.h"

namespace levin::detail {

/// A text in quotes, in UTF-8.
std::string json_text(std::string_view text);
/// A number; NaN and infinities are the texts that Python's float() reads.
std::string json_number(double value);
/// A line {"step":...,"epoch":...,"name":value,...}.
std::string json_row(const Scalars& values, int64_t epoch, int64_t step);

class JsonRows {
 public:
  /// Does nothing if it is open. Throws Error "observe.logger.jsonl" for a file of somebody else's.
  void open(const std::string& path);
  bool is_open() const { return static_cast<bool>(file_); }
  int64_t size() const { return size_; }  ///< bytes
  /// Returns how many rows there were behind so many bytes.
  int64_t keep(int64_t bytes);
  void add(const std::string& row);

 private:
  void replace(const std::string& path, const std::string& text);

  std::string path_;
  posix::Descriptor file_;
  int64_t size_ = 0;
};

/// Writes rows of JSON to metrics.jsonl in its folder.
class JsonFolderLogger : public FolderLogger {
 public:
  using FolderLogger::FolderLogger;

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override;
  State state_dict() const override;
  bool resume(const State& state, int64_t step) override;

 protected:
  std::string path() const { return directory().path() + "/metrics.jsonl"; }

 private:
  mutable JsonRows rows_;
};

}  // namespace levin::detail
