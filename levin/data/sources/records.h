#pragma once
// Records: the rows of a text file, each an object of named values: JSON lines and CSV.
// What a data set of one's own, or text::rows, reads; the file is mapped, its rows are found once.
//
//   auto records = data::open_records("points.jsonl");           // {"x": [0.5, 1.5], "label": 1}
//   auto dataset = data::samples(records->size(), [records](int64_t i) {
//     const data::Record record = records->read(i);
//     return data::Sample{{"x", torch::tensor(record.numbers("x"))},
//                         {"label", torch::tensor(record.integer("label"))}};
//   });

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::data {

/// One row. Every access to a value that is not there, or not of that kind, throws Error
/// "data.records.field" with file and line. Null is not there. All values of CSV are texts, which are read
/// as numbers where these are asked for.
class LEVIN_API Record {
 public:
  enum class Kind { kMissing, kFlag, kInteger, kNumber, kText, kList, kObject };

  Kind kind(std::string_view name) const;
  bool has(std::string_view name) const { return kind(name) != Kind::kMissing; }
  std::vector<std::string> names() const;  ///< as in the file

  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  std::string json(std::string_view name) const;  ///< any value

  std::string where() const;  ///< "points.jsonl, line 7"

  struct Parts;  ///< for levin's own sources
  explicit Record(std::unique_ptr<Parts> parts);
  Record(Record&&) noexcept;
  Record& operator=(Record&&) noexcept;
  ~Record();
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

/// read is called from several threads at once.
class LEVIN_API Records {
 public:
  virtual ~Records();

  virtual int64_t size() const = 0;
  /// Throws Error "data.json_lines", "data.csv" or "data.utf8" with file and line where that is damaged,
  /// and "data.records.index".
  virtual Record read(int64_t index) const = 0;
  /// Whether the file tells numbers from texts; CSV does not.
  virtual bool has_kinds() const = 0;
  virtual const std::filesystem::path& path() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;  ///< of the whole file
};

using RecordsPtr = std::shared_ptr<const Records>;

/// One JSON object a line; empty lines are none. Throws Error "files.read".
LEVIN_API RecordsPtr json_lines(const std::filesystem::path& path);

struct CsvOptions {
  char delimiter = ',';
};

/// RFC 4180: a header, fields in quotes where they hold delimiters, quotes (doubled) or ends of lines;
/// these are \n or \r\n. Throws Error "files.read" and "data.csv": no header, two columns of one name,
/// quotes that do not end, or a row with more or fewer fields than the header.
LEVIN_API RecordsPtr csv(const std::filesystem::path& path, CsvOptions options = {});

/// By the file's name: .jsonl, .ndjson and .json, .csv, .tsv. Others throw Error "data.records.format".
LEVIN_API RecordsPtr open_records(const std::filesystem::path& path);

}  // namespace levin::data
