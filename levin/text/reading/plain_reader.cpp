#include <nlohmann/json.hpp>

#include <charconv>
#include <string>
#include <string_view>

#include "levin/base/json.h"
#include "levin/text/reading/json_cursor.h"
#include "levin/text/reading/model_data.h"

namespace levin::text {
namespace {

/// Not read as a tree: the model's part is kept apart, and what is unusual ends it.
class PlainReader {
 public:
  PlainReader(std::string_view json, TextMemory& memory, ModelData& data)
      : at_(json), memory_(memory), data_(data) {}

  /// False where the file is not as programs write it: it may be wrong or only unusual, and a parser has to say.
  bool read(nlohmann::json& root) { return read_value(root, Place::kTop) && at_.is_end(); }

 private:
  enum class Place { kTop, kModel, kElsewhere };

  bool read_value(nlohmann::json& value, Place place);
  bool read_object(nlohmann::json& object, Place place);
  bool read_list(nlohmann::json& list);
  bool read_number(nlohmann::json& value);
  bool read_model_field(std::string_view name, nlohmann::json& value);
  bool read_ids();
  bool read_scores();
  bool read_merges();

  /// The fields of an object, by a function that reads the value of a key.
  template <class Read>
  bool read_fields(const Read& read) {
    if (!at_.take('{')) return false;
    if (at_.take('}')) return true;
    std::string_view key;
    do {
      if (!at_.text(key, memory_) || !at_.take(':') || !read(key)) return false;
    } while (at_.take(','));
    return at_.take('}');
  }
  /// The items of a list.
  template <class Read>
  bool read_items(const Read& read) {
    if (!at_.take('[')) return false;
    if (at_.take(']')) return true;
    do {
      if (!read()) return false;
    } while (at_.take(','));
    return at_.take(']');
  }

  JsonCursor at_;
  TextMemory& memory_;
  ModelData& data_;
  int64_t depth_ = 0;
};

using nlohmann::json;

// Bytes that a token or a merge takes in a file, at least. Reserved memory costs nothing until it is written.
constexpr size_t kBytesAToken = 10;

template <class Number>
bool parse(std::string_view digits, Number& number) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

bool PlainReader::read_value(json& value, Place place) {
  switch (at_.peek()) {
    case '{':
      return read_object(value, place);
    case '[':
      return read_list(value);
    case '"': {
      std::string_view text;
      if (!at_.text(text, memory_)) return false;
      value = std::string(text);
      return true;
    }
    case 't':
      value = true;
      return at_.take("true");
    case 'f':
      value = false;
      return at_.take("false");
    case 'n':
      value = nullptr;
      return at_.take("null");
    default:
      return read_number(value);
  }
}

bool PlainReader::read_object(json& object, Place place) {
  if (++depth_ > detail::kMaxJsonDepth) return false;
  object = json::object();
  const bool done = read_fields([&](std::string_view key) {
    json& value = object[std::string(key)];
    if (place == Place::kModel) return read_model_field(key, value);
    const bool is_model = place == Place::kTop && key == "model";
    return read_value(value, is_model ? Place::kModel : Place::kElsewhere);
  });
  --depth_;
  return done;
}

bool PlainReader::read_list(json& list) {
  if (++depth_ > detail::kMaxJsonDepth) return false;
  list = json::array();
  const bool done = read_items([&] {
    list.push_back(nullptr);
    return read_value(list.back(), Place::kElsewhere);
  });
  --depth_;
  return done;
}

bool PlainReader::read_number(json& value) {
  std::string_view digits;
  if (!at_.digits(digits)) return false;
  double real = 0.0;
  int64_t negative = 0;
  uint64_t whole = 0;
  if (digits.find_first_of(".eE") != std::string_view::npos) {
    if (!parse(digits, real)) return false;
    value = real;
  } else if (digits.front() == '-') {
    if (!parse(digits, negative)) return false;
    value = negative;
  } else {
    if (!parse(digits, whole)) return false;
    value = whole;
  }
  return true;
}

/// Leaves a field that occurs twice to the JSON parser.
bool PlainReader::read_model_field(std::string_view name, json& value) {
  const char first = at_.peek();
  const bool is_vocabulary = name == "vocab" && (first == '{' || first == '[');
  const bool is_merges = name == "merges" && first == '[';
  if (!is_vocabulary && !is_merges) return read_value(value, Place::kElsewhere);
  value = nullptr;
  if (is_merges) {
    if (data_.has_merges) return false;
    data_.has_merges = true;
    data_.merges.reserve(at_.bytes_left() / kBytesAToken);
    return read_merges();
  }
  if (data_.has_vocabulary) return false;
  data_.has_vocabulary = true;
  data_.is_list = first == '[';
  data_.vocabulary.reserve(at_.bytes_left() / kBytesAToken);
  return data_.is_list ? read_scores() : read_ids();
}

bool PlainReader::read_ids() {
  return read_fields([&](std::string_view token) {
    int64_t id = 0;
    if (!at_.whole(id)) return false;
    data_.vocabulary.push_back({token, id});
    return true;
  });
}

bool PlainReader::read_scores() {
  return read_items([&] {
    std::string_view token;
    std::string_view digits;
    double score = 0.0;
    if (!at_.take('[') || !at_.text(token, memory_) || !at_.take(',') || !at_.digits(digits) ||
        !parse(digits, score) || !at_.take(']')) {
      return false;
    }
    data_.vocabulary.push_back({token, static_cast<int64_t>(data_.vocabulary.size())});
    data_.scores.push_back(score + 0.0);  // -0 is 0, as to the parser
    return true;
  });
}

bool PlainReader::read_merges() {
  return read_items([&] {
    std::string_view left;
    if (at_.peek() == '"') return at_.text(left, memory_) && data_.add_merge(left);
    std::string_view right;
    if (!at_.take('[') || !at_.text(left, memory_) || !at_.take(',') || !at_.text(right, memory_) ||
        !at_.take(']')) {
      return false;
    }
    data_.merges.emplace_back(left, right);
    return true;
  });
}

bool read_plainly(std::string_view json, TextMemory& memory, ModelData& data, void* root) {
  return PlainReader(json, memory, data).read(*static_cast<nlohmann::json*>(root));
}

}  // namespace levin::text
