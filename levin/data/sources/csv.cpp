#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/data/sources/record_impl.h"

namespace levin::data {
namespace {

namespace fs = std::filesystem;

/// A row may go over several lines.
class Csv final : public RecordsFile {
 public:
  Csv(fs::path path, CsvOptions options) : RecordsFile(std::move(path)), options_(options) {
    size_t at = all().starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    int64_t line = 1;
    at = skip_empty(at, line);
    LEVIN_CHECK(at < all().size(), "data.csv", "{} is empty, wanted a header line", path_.string());
    names_ = fields_at(at, line);
    for (const std::string& name : names_) {
      LEVIN_CHECK(std::ranges::count(names_, name) == 1, "data.csv",
                  "{}: two columns are named '{}'; rename one", place_of(path_, line),
                  printable(name));
    }
    for (at = skip_row(at, line); (at = skip_empty(at, line)) < all().size();) {
      rows_.push_back({static_cast<int64_t>(at), line});
      at = skip_row(at, line);
    }
  }

  bool has_kinds() const override { return false; }

  Record read(int64_t index) const override {
    check_index(*this, index);
    const auto [begin, line] = rows_[static_cast<size_t>(index)];
    std::vector<std::string> fields = fields_at(static_cast<size_t>(begin), line);
    LEVIN_CHECK(fields.size() == names_.size(), "data.csv", "{}: got {} fields, wanted {}: {}",
                place_of(path_, line), fields.size(), names_.size(), printable(to_text(names_)));
    std::vector<RecordParts::Value> values;
    for (size_t i = 0; i < fields.size(); ++i) {
      values.push_back({names_[i], Record::Kind::kText, std::move(fields[i])});
    }
    return record(std::move(values), line);
  }

 private:
  /// Skips empty lines.
  size_t skip_empty(size_t at, int64_t& line) const {
    const std::string_view text = all();
    while (at < text.size()) {
      const size_t end = text[at] == '\r' && at + 1 < text.size() ? at + 1 : at;
      if (text[end] != '\n') break;
      at = end + 1;
      ++line;
    }
    return at;
  }

  /// Returns the place behind the row's end. A quote at a field's beginning opens a quoted field;
  /// within it a quote that is not doubled ends it.
  size_t skip_row(size_t at, int64_t& line) const {
    const std::string_view text = all();
    const int64_t first = line;
    while (at < text.size()) {
      if (text[at] == '"') {
        at = skip_quoted(at, line, first);
      } else {
        at = std::min(text.find_first_of(stops_, at), text.size());
      }
      if (at >= text.size()) break;
      if (text[at] == '\n') {
        ++line;
        return at + 1;
      }
      // A carriage return stands before the end of a line, or is a part of a field.
      ++at;
    }
    return at;
  }

  size_t skip_quoted(size_t at, int64_t& line, int64_t first) const {
    const std::string_view text = all();
    for (++at; at < text.size(); ++at) {
      if (text[at] == '\n') ++line;
      if (text[at] != '"') continue;
      if (at + 1 < text.size() && text[at + 1] == '"') {
        ++at;
        continue;
      }
      ++at;
      const bool ends = at == text.size() || text[at] == options_.delimiter || text[at] == '\n' ||
                        (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n');
      LEVIN_CHECK(ends, "data.csv",
                  "{}: text follows the closing quote of a field; double the quotes within a field",
                  place_of(path_, line));
      return at;
    }
    LEVIN_FAIL("data.csv", "{}: a quote opens a field but no quote closes it",
               place_of(path_, first));
  }

  std::vector<std::string> fields_at(size_t at, int64_t line) const {
    const std::string_view text = all();
    const size_t begin = at;
    int64_t inner = line;
    std::vector<std::string> fields;
    for (bool more = true; more; ++at) {
      std::string& field = fields.emplace_back();
      if (at < text.size() && text[at] == '"') {
        const size_t end = skip_quoted(at, inner, line);
        unquote(text.substr(at + 1, end - at - 2), field);
        at = end;
      } else {
        const size_t end = std::min(text.find_first_of(stops_, at), text.size());
        field = text.substr(at, end - at);
        at = end;
        const bool ends_row = at == text.size() || text[at] == '\n';
        if (ends_row && field.ends_with('\r')) field.pop_back();
      }
      if (at < text.size() && text[at] == '\r') ++at;
      if (at == text.size()) break;
      more = text[at] == options_.delimiter;
    }
    check_utf8(text.substr(begin, at - begin), path_, line);
    return fields;
  }

  static void unquote(std::string_view quoted, std::string& field) {
    for (size_t at = 0; at < quoted.size(); ++at) {
      field += quoted[at];
      if (quoted[at] == '"') ++at;
    }
  }

  CsvOptions options_;
  std::string stops_ = {options_.delimiter, '\n'};  ///< characters that end a field without quotes
  std::vector<std::string> names_;
};

}  // namespace

RecordsPtr csv(const fs::path& path, CsvOptions options) {
  LEVIN_CHECK(options.delimiter != '"' && options.delimiter != '\n' && options.delimiter != '\r',
              "data.csv", "got a quote or a line end as delimiter, wanted another character");
  return std::make_shared<Csv>(path, options);
}

}  // namespace levin::data
