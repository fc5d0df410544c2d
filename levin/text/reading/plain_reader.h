#pragma once
// PlainReader: a tokenizer.json as programs write it, several times faster than by a parser that tells of every value.
// Not for users.

#include <nlohmann/json.hpp>

#include <string_view>

#include "levin/text/reading/json_cursor.h"
#include "levin/text/reading/model_data.h"
#include "levin/text/reading/text_memory.h"

namespace levin::text {

/// Puts the model's vocabulary and merges into `data` and everything else, with null in their places, into `root`.
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

}  // namespace levin::text
