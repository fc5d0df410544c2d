#pragma once
// RecordParts: the values of a Record. RecordsFile: a mapped file of records.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {

struct RecordParts {
  struct Value {
    std::string name;
    Record::Kind kind = Record::Kind::kText;
    std::string text;  ///< JSON for any kind but kText
  };
  std::vector<Value> values;  ///< none that is missing
  const std::filesystem::path* path = nullptr;
  int64_t line = 0;                  ///< from 1 on
  std::shared_ptr<const void> file;  ///< owner of path
  std::string_view unit = "line";    ///< what `line` counts
};

inline const RecordParts& parts_of(const Record& record) { return *record.parts_; }
inline Record make_record(RecordParts parts) {
  return Record(std::make_unique<RecordParts>(std::move(parts)));
}

/// A mapped file of records, each of which begins a line.
class RecordsFile : public Records, public std::enable_shared_from_this<RecordsFile> {
 public:
  int64_t size() const final { return std::ssize(rows_); }
  const std::filesystem::path& path() const final { return path_; }
  std::span<const std::byte> bytes() const final { return map_.bytes(); }

 protected:
  struct Row {
    int64_t begin;
    int64_t line;  ///< its first, from 1 on
  };

  explicit RecordsFile(std::filesystem::path path) : path_(std::move(path)), map_(path_) {}

  std::string_view all() const {
    return {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  }
  Record record(std::vector<RecordParts::Value> values, int64_t line) const {
    return make_record(RecordParts{std::move(values), &path_, line, shared_from_this()});
  }

  std::filesystem::path path_;
  files::MemoryMap map_;
  std::vector<Row> rows_;
};

/// The byte order mark that some programs put before a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// "points.jsonl, line 7"
std::string place_of(const std::filesystem::path& path, int64_t line,
                     std::string_view unit = "line");

/// Throws Error "data.records.index".
void check_index(const Records& records, int64_t index);

/// Throws Error "data.utf8" if the text is not UTF-8.
void check_utf8(std::string_view text, const std::filesystem::path& path, int64_t line,
                std::string_view unit = "line");

}  // namespace levin::data
