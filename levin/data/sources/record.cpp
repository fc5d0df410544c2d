#include <charconv>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/base/utf8.h"
#include "levin/data/sources/record_impl.h"

namespace levin::data {
namespace {

using nlohmann::ordered_json;

const ordered_json& value_of(const Record& record, std::string_view name) {
  const ordered_json* value = record.parts().find(name);
  if (value != nullptr) return *value;
  std::string names;
  for (const std::string& other : record.names()) names += (names.empty() ? "" : ", ") + other;
  LEVIN_FAIL("data.records.field", "{}: there is no '{}'; it has {}", record.where(),
             printable(name), names.empty() ? "nothing" : printable(names));
}

[[noreturn]] void fail_kind(const Record& record, std::string_view name, std::string_view wanted) {
  constexpr size_t kShown = 60;
  std::string shown = printable(record.json(name).substr(0, kShown));
  LEVIN_FAIL("data.records.field", "{}: '{}' is {}, wanted {}", record.where(), printable(name),
             shown, wanted);
}

/// A text that is a number from its first character to the last.
template <class Number>
bool read_whole(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

}  // namespace

const ordered_json* Record::Parts::find(std::string_view name) const {
  const auto found = values.find(name);
  return found == values.end() || found->is_null() ? nullptr : &*found;
}

std::string place_of(const std::filesystem::path& path, int64_t line) {
  return fmt::format("{}, line {}", path.string(), line);
}

void check_index(const Records& records, int64_t index) {
  LEVIN_CHECK(index >= 0 && index < records.size(), "data.records.index",
              "got index {} of {}, which has {} rows", index, records.path().string(),
              records.size());
}

void check_utf8(std::string_view text, const std::filesystem::path& path, int64_t line) {
  const std::optional<size_t> at = levin::detail::invalid_utf8(text);
  LEVIN_CHECK(!at, "data.utf8",
              "{}: byte {:#04x} at place {} is no UTF-8; convert the file, by iconv for example",
              place_of(path, line), static_cast<unsigned char>(text[at.value_or(0)]),
              at.value_or(0));
}

Record::Record(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Record::Record(Record&&) noexcept = default;
Record& Record::operator=(Record&&) noexcept = default;
Record::~Record() = default;

Record::Kind Record::kind(std::string_view name) const {
  const ordered_json* value = parts_->find(name);
  if (value == nullptr) return Kind::kMissing;
  switch (value->type()) {
    case ordered_json::value_t::boolean:
      return Kind::kFlag;
    case ordered_json::value_t::number_integer:
    case ordered_json::value_t::number_unsigned:
      return Kind::kInteger;
    case ordered_json::value_t::number_float:
      return Kind::kNumber;
    case ordered_json::value_t::string:
      return Kind::kText;
    case ordered_json::value_t::array:
      return Kind::kList;
    default:
      return Kind::kObject;
  }
}

std::vector<std::string> Record::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : parts_->values.items()) names.push_back(name);
  return names;
}

const std::string& Record::text(std::string_view name) const {
  const ordered_json& value = value_of(*this, name);
  if (!value.is_string()) fail_kind(*this, name, "a text");
  return value.get_ref<const std::string&>();
}

int64_t Record::integer(std::string_view name) const {
  const ordered_json& value = value_of(*this, name);
  int64_t number = 0;
  if (value.is_string() && read_whole(value.get_ref<const std::string&>(), number)) return number;
  const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
  if (!value.is_number_integer() || is_large) fail_kind(*this, name, "a whole number");
  return value.get<int64_t>();
}

double Record::number(std::string_view name) const {
  const ordered_json& value = value_of(*this, name);
  double number = 0;
  if (value.is_string() && read_whole(value.get_ref<const std::string&>(), number)) return number;
  if (!value.is_number()) fail_kind(*this, name, "a number");
  return value.get<double>();
}

std::vector<std::string> Record::texts(std::string_view name) const {
  const ordered_json& value = value_of(*this, name);
  if (!value.is_array()) fail_kind(*this, name, "a list of texts");
  std::vector<std::string> texts;
  texts.reserve(value.size());
  for (const ordered_json& item : value) {
    if (!item.is_string()) fail_kind(*this, name, "a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::vector<double> Record::numbers(std::string_view name) const {
  const ordered_json& value = value_of(*this, name);
  if (!value.is_array()) fail_kind(*this, name, "a list of numbers");
  std::vector<double> numbers;
  numbers.reserve(value.size());
  for (const ordered_json& item : value) {
    if (!item.is_number()) fail_kind(*this, name, "a list of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::string Record::json(std::string_view name) const { return value_of(*this, name).dump(); }

std::string Record::where() const { return place_of(*parts_->path, parts_->line); }

Records::~Records() = default;

RecordsPtr open_records(const std::filesystem::path& path) {
  const std::string kind = path.extension().string();
  if (kind == ".jsonl" || kind == ".ndjson" || kind == ".json") return json_lines(path);
  if (kind == ".csv") return csv(path);
  if (kind == ".tsv") return csv(path, {.delimiter = '\t'});
  LEVIN_FAIL("data.records.format",
             "{} is of a kind that is not known; wanted .jsonl, .ndjson or .json (an object a "
             "line), .csv or .tsv",
             path.string());
}

}  // namespace levin::data
