#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/data/sources/record_impl.h"

namespace levin::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r";

Record::Kind kind_of(const ordered_json& value) {
  switch (value.type()) {
    case ordered_json::value_t::boolean:
      return Record::Kind::kFlag;
    case ordered_json::value_t::number_integer:
    case ordered_json::value_t::number_unsigned:
      return Record::Kind::kInteger;
    case ordered_json::value_t::number_float:
      return Record::Kind::kNumber;
    case ordered_json::value_t::string:
      return Record::Kind::kText;
    case ordered_json::value_t::array:
      return Record::Kind::kList;
    default:
      return Record::Kind::kObject;
  }
}

/// Counts only lines that hold something.
class JsonLines final : public RecordsFile {
 public:
  explicit JsonLines(fs::path path) : RecordsFile(std::move(path)) {
    const std::string_view text = all();
    size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    for (int64_t number = 1; at < text.size(); ++number) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      if (line.find_first_not_of(kBlanks) != std::string_view::npos) {
        rows_.push_back({static_cast<int64_t>(at), number});
      }
      at = end + 1;
    }
  }

  bool has_kinds() const override { return true; }

  Record read(int64_t index) const override {
    check_index(*this, index);
    const auto [begin, number] = rows_[static_cast<size_t>(index)];
    std::string_view line = all().substr(static_cast<size_t>(begin));
    line = line.substr(0, line.find('\n'));
    std::vector<RecordParts::Value> values;
    ordered_json row = parsed(line, number);
    for (auto& [name, value] : row.items()) {
      if (value.is_null()) continue;
      const bool is_text = value.is_string();
      values.push_back({name, kind_of(value),
                        is_text ? std::move(value.get_ref<std::string&>()) : value.dump()});
    }
    return record(std::move(values), number);
  }

 private:
  ordered_json parsed(std::string_view line, int64_t number) const {
    try {
      const std::string_view shallow = levin::detail::shallow_json(line);
      LEVIN_CHECK(!shallow.empty(), "data.json_lines",
                  "{}: the JSON is nested deeper than {} levels", place_of(path_, number),
                  levin::detail::kMaxJsonDepth);
      ordered_json row = ordered_json::parse(shallow);
      LEVIN_CHECK(row.is_object(), "data.json_lines",
                  "{}: got a JSON {}, wanted one object per line, as {{\"text\": \"...\"}}",
                  place_of(path_, number), row.type_name());
      return row;
    } catch (const ordered_json::parse_error& error) {
      check_utf8(line, path_, number);
      LEVIN_FAIL("data.json_lines", "{}: invalid JSON at byte {} of {}, wanted one object per line",
                 place_of(path_, number), std::min(error.byte, line.size()), line.size());
    } catch (const ordered_json::exception& error) {
      LEVIN_FAIL("data.json_lines", "{}: {}", place_of(path_, number), error.what());
    }
  }
};

}  // namespace

RecordsPtr json_lines(const fs::path& path) { return std::make_shared<JsonLines>(path); }

}  // namespace levin::data
