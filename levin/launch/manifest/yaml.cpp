#include "levin/launch/manifest/yaml.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace levin::launch::detail {
namespace {

using nlohmann::ordered_json;

// Plain words that YAML 1.1 does not read as text.
constexpr std::array<std::string_view, 9> kWords = {"true", "false", "yes",  "no", "on",
                                                    "off",  "y",     "null", "n"};

bool is_plain(const std::string& text) {
  std::string small = text;
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return !text.empty() &&
         (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/') &&
         std::ranges::find(kWords, small) == kWords.end() && text.back() != ':' &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("_-./:").find(c) != std::string::npos;
         });
}

// JSON is YAML too, and so is its way to quote.
std::string scalar_of(const ordered_json& value) {
  return value.is_string() && is_plain(value.get_ref<const std::string&>())
             ? value.get<std::string>()
             : value.dump();
}

bool is_block(const ordered_json& value) {
  if (value.empty()) return false;
  return value.is_object() || (value.is_array() && value.front().is_structured());
}

void write(const ordered_json& value, const std::string& indent, std::string& text);

// "key: value", or the key and its block below. A list stands two columns right of its key.
void write_member(const std::string& key, const ordered_json& value, const std::string& indent,
                  std::string& text) {
  text += scalar_of(key) + ":";
  if (!is_block(value)) {
    text += " " + scalar_of(value) + "\n";
    return;
  }
  text += "\n" + indent + "  ";
  write(value, indent + "  ", text);
}

// The first line goes where the caller has put its indent.
void write(const ordered_json& value, const std::string& indent, std::string& text) {
  bool first = true;
  for (const auto& [key, member] : value.items()) {
    if (!first) text += indent;
    first = false;
    if (value.is_object()) {
      write_member(key, member, indent, text);
    } else {
      text += "- ";
      write(member, indent + "  ", text);
    }
  }
}

}  // namespace

std::string yaml_of(std::string_view json) {
  std::string text;
  write(ordered_json::parse(json), "", text);
  return text;
}

}  // namespace levin::launch::detail
