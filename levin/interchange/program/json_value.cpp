#include "levin/interchange/program/json_value.h"

#include <nlohmann/json.hpp>

#include <limits>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"

namespace levin::interchange {
namespace {

const nlohmann::json& of(const void* json) { return *static_cast<const nlohmann::json*>(json); }

}  // namespace

void fail_reading(std::string_view what) {
  LEVIN_FAIL("interchange.archive", "the program of torch.export cannot be read: {}",
             printable(what));
}

JsonValue JsonValue::field(const char* name) const {
  if (of(json_).is_object()) {
    if (const auto found = of(json_).find(name); found != of(json_).end()) {
      return JsonValue(&*found);
    }
  }
  fail_reading(fmt::format("an object has no '{}'", name));
}

std::optional<JsonValue> JsonValue::find_field(const char* name) const {
  if (!of(json_).is_object()) return std::nullopt;
  const auto found = of(json_).find(name);
  if (found == of(json_).end() || found->is_null()) return std::nullopt;
  return JsonValue(&*found);
}

std::pair<std::string, JsonValue> JsonValue::only_field() const {
  if (of(json_).is_object()) {
    for (const auto& [key, value] : of(json_).items()) {
      if (!value.is_null()) return {key, JsonValue(&value)};
    }
  }
  fail_reading("a value has no type");
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::fields(const char* what) const {
  if (!of(json_).is_object()) fail_reading(fmt::format("{} is not an object", what));
  std::vector<std::pair<std::string, JsonValue>> fields;
  for (const auto& [key, value] : of(json_).items()) fields.emplace_back(key, JsonValue(&value));
  return fields;
}

std::vector<JsonValue> JsonValue::items(const char* what) const {
  if (!of(json_).is_array()) fail_reading(fmt::format("{} is not a list", what));
  std::vector<JsonValue> items;
  for (const nlohmann::json& item : of(json_)) items.emplace_back(&item);
  return items;
}

const std::string& JsonValue::text(const char* what) const {
  if (!of(json_).is_string()) fail_reading(fmt::format("{} is not a string", what));
  return of(json_).get_ref<const std::string&>();
}

int64_t JsonValue::integer(const char* what) const {
  if (!of(json_).is_number_integer()) fail_reading(fmt::format("{} is not an integer", what));
  return of(json_).get<int64_t>();
}

bool JsonValue::flag(const char* what) const {
  if (!of(json_).is_boolean()) fail_reading(fmt::format("{} is not true or false", what));
  return of(json_).get<bool>();
}

double JsonValue::number(const char* what) const {
  if (of(json_).is_number()) return of(json_).get<double>();
  const std::string text = of(json_).is_string() ? of(json_).get<std::string>() : "";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "Infinity" || text == "inf") return kInfinity;
  if (text == "-Infinity" || text == "-inf") return -kInfinity;
  if (text == "NaN" || text == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail_reading(fmt::format("{} is not a number", what));
}

struct JsonDocument::Tree {
  nlohmann::json json;
};

JsonDocument::JsonDocument(std::string_view text, const std::string& origin)
    : tree_(std::make_unique<Tree>(
          nlohmann::json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false))) {
  if (!tree_->json.is_object()) fail_reading(origin + " is not a JSON object");
}

JsonDocument::~JsonDocument() = default;

JsonValue JsonDocument::top() const { return JsonValue(&tree_->json); }

}  // namespace levin::interchange
