#include <arrow/api.h>
#include <arrow/io/api.h>
#include <nlohmann/json.hpp>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>

#include "levin/base/check.h"
#include "levin/data/sources/record_impl.h"

namespace levin::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kKeptGroups = 8;  ///< groups of rows that stay in memory

template <class Result>
auto there(Result result, const fs::path& path) {
  LEVIN_CHECK(result.ok(), "data.parquet", "{}: {}", path.string(), result.status().ToString());
  return std::move(result).ValueOrDie();
}

void check_status(const arrow::Status& status, const fs::path& path) {
  LEVIN_CHECK(status.ok(), "data.parquet", "{}: {}", path.string(), status.ToString());
}

/// Returns why a column of this type cannot be read; "" if it can.
std::string refusal(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY:
    case arrow::Type::EXTENSION:
    case arrow::Type::SPARSE_UNION:
    case arrow::Type::DENSE_UNION:
      return type.ToString();
    default:
      break;
  }
  for (const auto& field : type.fields()) {
    const std::string inner = refusal(*field->type());
    if (!inner.empty()) return inner;
  }
  return "";
}

/// Makes JSON of Arrow's values: integers, floating-point numbers, booleans, strings, lists and
/// structs as such, all else as Arrow's text.
class JsonOf {
 public:
  explicit JsonOf(const fs::path& path) : path_(path) {}

  ordered_json operator()(const arrow::Scalar& scalar) const {
    if (!scalar.is_valid) return nullptr;
    const arrow::DataType& type = *scalar.type;
    if (type.id() == arrow::Type::BOOL) {
      return static_cast<const arrow::BooleanScalar&>(scalar).value;
    }
    if (arrow::is_signed_integer(type.id())) {
      return cast<arrow::Int64Scalar>(scalar, arrow::int64()).value;
    }
    if (arrow::is_unsigned_integer(type.id())) {
      return cast<arrow::UInt64Scalar>(scalar, arrow::uint64()).value;
    }
    if (arrow::is_floating(type.id())) {
      const double value = cast<arrow::DoubleScalar>(scalar, arrow::float64()).value;
      return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
    }
    if (const auto* text = dynamic_cast<const arrow::BaseBinaryScalar*>(&scalar)) {
      return std::string(text->view());
    }
    if (const auto* word = dynamic_cast<const arrow::DictionaryScalar*>(&scalar)) {
      return (*this)(*there(word->GetEncodedValue(), path_));
    }
    if (const auto* list = dynamic_cast<const arrow::BaseListScalar*>(&scalar)) {
      ordered_json items = ordered_json::array();
      for (int64_t i = 0; i < list->value->length(); ++i) {
        items.push_back((*this)(*there(list->value->GetScalar(i), path_)));
      }
      return items;
    }
    if (const auto* object = dynamic_cast<const arrow::StructScalar*>(&scalar)) {
      ordered_json fields = ordered_json::object();
      for (int i = 0; i < type.num_fields(); ++i) {
        fields[type.field(i)->name()] = (*this)(*object->value[static_cast<size_t>(i)]);
      }
      return fields;
    }
    return scalar.ToString();
  }

 private:
  template <class Scalar>
  Scalar cast(const arrow::Scalar& scalar, const std::shared_ptr<arrow::DataType>& type) const {
    return static_cast<const Scalar&>(*there(scalar.CastTo(type), path_));
  }

  const fs::path& path_;
};

Record::Kind kind_of_dump(std::string_view json) {
  switch (json.front()) {
    case 't':
    case 'f':
      return Record::Kind::kFlag;
    case '[':
      return Record::Kind::kList;
    case '{':
      return Record::Kind::kObject;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? Record::Kind::kInteger
                                                                 : Record::Kind::kNumber;
  }
}

class ParquetRecords final : public Records, public std::enable_shared_from_this<ParquetRecords> {
 public:
  explicit ParquetRecords(fs::path path) : path_(std::move(path)), map_(path_) {
    const auto buffer = std::make_shared<arrow::Buffer>(
        reinterpret_cast<const uint8_t*>(map_.bytes().data()), std::ssize(map_.bytes()));
    try {
      parquet::arrow::FileReaderBuilder builder;
      check_status(builder.Open(std::make_shared<arrow::io::BufferReader>(buffer)), path_);
      reader_ = there(builder.Build(), path_);
      std::shared_ptr<arrow::Schema> schema;
      check_status(reader_->GetSchema(&schema), path_);
      for (const auto& field : schema->fields()) {
        const std::string type = refusal(*field->type());
        LEVIN_CHECK(type.empty(), "data.parquet",
                    "{}: column '{}' has the type {}, which is neither text, a number, a list nor "
                    "an object; leave it out when you write the file",
                    path_.string(), field->name(), type);
      }
      const auto metadata = reader_->parquet_reader()->metadata();
      ends_.push_back(0);
      for (int group = 0; group < metadata->num_row_groups(); ++group) {
        ends_.push_back(ends_.back() + metadata->RowGroup(group)->num_rows());
      }
    } catch (const parquet::ParquetException& error) {
      LEVIN_FAIL("data.parquet", "{}: {}", path_.string(), error.what());
    }
  }

  int64_t size() const override { return ends_.back(); }
  bool has_kinds() const override { return true; }
  const fs::path& path() const override { return path_; }
  std::span<const std::byte> bytes() const override { return map_.bytes(); }

  Record read(int64_t index) const override {
    check_index(*this, index);
    const auto end = std::ranges::upper_bound(ends_, index);
    const int group = static_cast<int>(end - ends_.begin()) - 1;
    const std::shared_ptr<arrow::Table> rows = group_of_rows(group);
    const int64_t row = index - ends_[static_cast<size_t>(group)];
    std::vector<RecordParts::Value> values;
    for (int column = 0; column < rows->num_columns(); ++column) {
      const std::shared_ptr<arrow::Scalar> scalar =
          there(rows->column(column)->GetScalar(row), path_);
      const ordered_json value = JsonOf(path_)(*scalar);
      if (value.is_null()) continue;
      const std::string name = rows->field(column)->name();
      if (value.is_string()) {
        values.push_back({name, Record::Kind::kText, value.get<std::string>()});
        continue;
      }
      try {
        const std::string json = value.dump();
        values.push_back({name, kind_of_dump(json), json});
      } catch (const ordered_json::exception& error) {  // a list with text that is not UTF-8
        LEVIN_FAIL("data.parquet", "{}: {}", place_of(path_, index + 1, "row"), error.what());
      }
    }
    for (const RecordParts::Value& value : values) check_utf8(value.text, path_, index + 1, "row");
    return make_record(
        RecordParts{std::move(values), &path_, index + 1, shared_from_this(), "row"});
  }

 private:
  std::shared_ptr<arrow::Table> group_of_rows(int group) const {
    const std::lock_guard lock(mutex_);
    auto found = std::ranges::find(kept_, group, [](const auto& entry) { return entry.first; });
    if (found == kept_.end()) {
      try {
        kept_.emplace_front(group, there(reader_->ReadRowGroup(group), path_));
      } catch (const parquet::ParquetException& error) {
        LEVIN_FAIL("data.parquet", "{}: {}", path_.string(), error.what());
      }
      if (kept_.size() > kKeptGroups) kept_.pop_back();
    } else {
      kept_.splice(kept_.begin(), kept_, found);
    }
    return kept_.front().second;
  }

  fs::path path_;
  files::MemoryMap map_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int64_t> ends_;  ///< rows before each group, and of all
  mutable std::mutex mutex_;   ///< for the reader and kept_
  mutable std::list<std::pair<int, std::shared_ptr<arrow::Table>>> kept_;  ///< the last used first
};

}  // namespace

RecordsPtr parquet(const fs::path& path) { return std::make_shared<ParquetRecords>(path); }

}  // namespace levin::data
