#include "levin/text/reading/component.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"

namespace levin::text {
namespace {

const nlohmann::json& json_of(const void* node) {
  return *static_cast<const nlohmann::json*>(node);
}

}  // namespace

bool Component::is_null() const { return json_of(node_).is_null(); }
bool Component::is_list() const { return json_of(node_).is_array(); }
bool Component::is_object() const { return json_of(node_).is_object(); }
bool Component::is_text() const { return json_of(node_).is_string(); }

bool Component::has(std::string_view key) const {
  const auto& json = json_of(node_);
  if (!json.is_object()) return false;
  const auto found = json.find(std::string(key));
  return found != json.end() && !found->is_null();
}

bool Component::mentions(std::string_view key) const {
  const auto& json = json_of(node_);
  return json.is_object() && json.contains(std::string(key));
}

std::string Component::json() const {
  return json_of(node_).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Component Component::at(std::string_view key) const {
  const auto& json = json_of(node_);
  if (!json.is_object()) fail(fmt::format("is {}, wanted an object", json.type_name()));
  const auto found = json.find(std::string(key));
  if (found == json.end()) fail(fmt::format("has no '{}'", key));
  return {&*found, where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key)};
}

Component Component::item(size_t index) const {
  const auto& json = json_of(node_);
  if (!json.is_array()) fail(fmt::format("is {}, wanted a list", json.type_name()));
  if (index >= json.size()) fail(fmt::format("has {} items, wanted more", json.size()));
  return {&json[index], fmt::format("{}[{}]", where_, index)};
}

std::vector<Component> Component::items() const {
  const auto& json = json_of(node_);
  if (!json.is_array()) fail(fmt::format("is {}, wanted a list", json.type_name()));
  std::vector<Component> items;
  items.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) items.push_back(item(i));
  return items;
}

std::vector<std::pair<std::string, Component>> Component::fields() const {
  const auto& json = json_of(node_);
  if (!json.is_object()) fail(fmt::format("is {}, wanted an object", json.type_name()));
  std::vector<std::pair<std::string, Component>> fields;
  for (const auto& [key, value] : json.items()) fields.emplace_back(key, at(key));
  return fields;
}

std::string Component::text() const {
  const auto& json = json_of(node_);
  if (!json.is_string()) fail(fmt::format("is {}, wanted a string", json.type_name()));
  return json.get<std::string>();
}

bool Component::flag() const {
  const auto& json = json_of(node_);
  if (!json.is_boolean()) fail(fmt::format("is {}, wanted true or false", json.type_name()));
  return json.get<bool>();
}

int64_t Component::whole() const {
  const auto& json = json_of(node_);
  // A number above INT64_MAX is an error: no field can have one.
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() >> 63 != 0)) {
    fail(fmt::format("is {}, wanted an integer", json.type_name()));
  }
  return json.get<int64_t>();
}

double Component::number() const {
  const auto& json = json_of(node_);
  if (!json.is_number()) fail(fmt::format("is {}, wanted a number", json.type_name()));
  return json.get<double>();
}

std::string Component::text(std::string_view key, std::string_view otherwise) const {
  return has(key) ? at(key).text() : std::string(otherwise);
}

bool Component::flag(std::string_view key, bool otherwise) const {
  return has(key) ? at(key).flag() : otherwise;
}

int64_t Component::whole(std::string_view key, int64_t otherwise) const {
  return has(key) ? at(key).whole() : otherwise;
}

char32_t Component::code_point(std::string_view key) const {
  const Component field = at(key);
  const std::string text = field.text();
  size_t at = 0;
  const char32_t c = text.empty() ? 0 : utf8::next(text, at);
  if (text.empty() || at != text.size()) field.fail("is not a string of one character");
  return c;
}

std::string Component::kind() const {
  if (!has("type")) {
    LEVIN_FAIL("text.component",
               "{} has no 'type'; save it with a newer version of Python's tokenizers", where_);
  }
  return at("type").text();
}

void Component::refuse_kind(std::string_view what,
                            const std::vector<std::string_view>& known) const {
  LEVIN_FAIL("text.component",
             "{} has the type '{}', which is not a {} that levin supports; wanted one of {}",
             where_, printable(kind()), what, fmt::join(known, ", "));
}

void Component::fail(std::string_view problem) const {
  LEVIN_FAIL("text.file", "{} {}", where_.empty() ? "the file" : printable(where_), problem);
}

}  // namespace levin::text
