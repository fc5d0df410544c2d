#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/data/sources/record_impl.h"

namespace levin::data {
namespace {

using Kind = Record::Kind;
using Value = RecordParts::Value;
using nlohmann::json;

const Value* find(const Record& record, std::string_view name) {
  const auto& values = parts_of(record).values;
  const auto found = std::ranges::find(values, name, &Value::name);
  return found == values.end() ? nullptr : &*found;
}

const Value& value_of(const Record& record, std::string_view name) {
  if (const Value* value = find(record, name)) return *value;
  std::string names;
  for (const std::string& other : record.names()) names += (names.empty() ? "" : ", ") + other;
  LEVIN_FAIL("data.records.field", "{}: the field '{}' is missing; the row has {}", record.where(),
             printable(name), names.empty() ? "nothing" : printable(names));
}

[[noreturn]] void fail_kind(const Record& record, std::string_view name, std::string_view wanted) {
  constexpr size_t kShown = 60;
  LEVIN_FAIL("data.records.field", "{}: '{}' is {}, wanted {}", record.where(), printable(name),
             printable(record.json(name).substr(0, kShown)), wanted);
}

/// A text that is a number from its first character to the last.
template <class Number>
bool read_whole(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

/// A list whose items are all of a kind.
template <class Item>
std::vector<Item> list_of(const Record& record, std::string_view name, std::string_view wanted) {
  const Value& value = value_of(record, name);
  if (value.kind != Kind::kList) fail_kind(record, name, wanted);
  std::vector<Item> items;
  for (const json& item : json::parse(value.text)) {
    const bool fits = std::is_same_v<Item, double> ? item.is_number() : item.is_string();
    if (!fits) fail_kind(record, name, wanted);
    items.push_back(item.get<Item>());
  }
  return items;
}

}  // namespace

std::string place_of(const std::filesystem::path& path, int64_t line, std::string_view unit) {
  return fmt::format("{}, {} {}", path.string(), unit, line);
}

void check_index(const Records& records, int64_t index) {
  LEVIN_CHECK(index >= 0 && index < records.size(), "data.records.index",
              "got row index {} of {}, which has {} rows", index, records.path().string(),
              records.size());
}

void check_utf8(std::string_view text, const std::filesystem::path& path, int64_t line,
                std::string_view unit) {
  const size_t at = utf8::invalid_byte(text);
  LEVIN_CHECK(
      at == std::string_view::npos, "data.utf8",
      "{}: byte {:#04x} at position {} is not UTF-8; convert the file, for example with iconv",
      place_of(path, line, unit), static_cast<unsigned char>(text[at]), at);
}

Record::Record(std::unique_ptr<RecordParts> parts) : parts_(std::move(parts)) {}
Record::Record(Record&&) noexcept = default;
Record& Record::operator=(Record&&) noexcept = default;
Record::~Record() = default;

Record::Kind Record::kind(std::string_view name) const {
  const Value* value = find(*this, name);
  return value == nullptr ? Kind::kMissing : value->kind;
}

std::vector<std::string> Record::names() const {
  std::vector<std::string> names;
  for (const Value& value : parts_->values) names.push_back(value.name);
  return names;
}

const std::string& Record::text(std::string_view name) const {
  const Value& value = value_of(*this, name);
  if (value.kind != Kind::kText) fail_kind(*this, name, "a string");
  return value.text;
}

int64_t Record::integer(std::string_view name) const {
  const Value& value = value_of(*this, name);
  int64_t number = 0;
  const bool may_be = value.kind == Kind::kText || value.kind == Kind::kInteger;
  if (!may_be || !read_whole(value.text, number)) fail_kind(*this, name, "an integer");
  return number;
}

double Record::number(std::string_view name) const {
  const Value& value = value_of(*this, name);
  double number = 0;
  const bool may_be =
      value.kind == Kind::kText || value.kind == Kind::kInteger || value.kind == Kind::kNumber;
  if (!may_be || !read_whole(value.text, number)) fail_kind(*this, name, "a number");
  return number;
}

std::vector<std::string> Record::texts(std::string_view name) const {
  return list_of<std::string>(*this, name, "a list of strings");
}

std::vector<double> Record::numbers(std::string_view name) const {
  return list_of<double>(*this, name, "a list of numbers");
}

std::string Record::json(std::string_view name) const {
  const Value& value = value_of(*this, name);
  return value.kind == Kind::kText ? nlohmann::json(value.text).dump() : value.text;
}

std::string Record::where() const { return place_of(*parts_->path, parts_->line, parts_->unit); }

Records::~Records() = default;

RecordsPtr open_records(const std::filesystem::path& path) {
  const std::string kind = path.extension().string();
  if (kind == ".jsonl" || kind == ".ndjson" || kind == ".json") return json_lines(path);
  if (kind == ".csv") return csv(path);
  if (kind == ".tsv") return csv(path, {.delimiter = '\t'});
  if (kind == ".parquet") return parquet(path);
  LEVIN_FAIL("data.records.format",
             "{} has an unknown file type; wanted .jsonl, .ndjson or .json (one object per line), "
             ".csv, .tsv or .parquet",
             path.string());
}

}  // namespace levin::data
