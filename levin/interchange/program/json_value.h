#pragma once
// JsonValue: JSON that somebody else wrote. Each field is there and of its type, or the error names it.
// Stands between the text of an archive's records and their readers.
//
//   const JsonDocument document(text, "models/model.json");
//   for (const JsonValue& node : document.top().field("nodes").items("nodes")) node.field("target").text("target");

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin::interchange {

/// Throws Error "interchange.archive": "the program of torch.export cannot be read: what".
[[noreturn]] void fail_reading(std::string_view what);

/// A part of a JsonDocument, which outlives it. All but find_field throw Error "interchange.archive" for a value
/// of another type; `what` names it there.
class JsonValue {
 public:
  /// json: one of nlohmann's.
  explicit JsonValue(const void* json) : json_(json) {}

  /// Returns a field of an object. Throws where it has none of that name.
  JsonValue field(const char* name) const;
  /// Returns nothing if it is no object, has no such field, or has null there.
  std::optional<JsonValue> find_field(const char* name) const;
  /// The one key of a union and its value, {"as_int": 3}; fields of null do not count.
  std::pair<std::string, JsonValue> only_field() const;
  /// Returns the fields of an object, in the order of their keys.
  std::vector<std::pair<std::string, JsonValue>> fields(const char* what) const;
  /// Returns the items of an array.
  std::vector<JsonValue> items(const char* what) const;
  const std::string& text(const char* what) const;
  int64_t integer(const char* what) const;
  bool flag(const char* what) const;
  /// Infinities and NaN are text in torch.export's JSON.
  double number(const char* what) const;

 private:
  const void* json_;
};

class JsonDocument {
 public:
  /// origin: the record, for the error where the text is no JSON object.
  JsonDocument(std::string_view text, const std::string& origin);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  JsonValue top() const;

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace levin::interchange
