#pragma once
// Component: a value of tokenizer.json with its place in the file, for errors that name it.
// Not for users.
//
//   component.kind();                        // "Metaspace"
//   component.flag("split", true);           // where it is not there: true

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::text {

/// A view of a part of a JSON file; the file has to outlive it. A value that is missing or of
/// another type throws Error "text.file" with its place.
class LEVIN_API Component {
 public:
  /// `node` is a nlohmann::json, which headers know nothing of.
  Component(const void* node, std::string where) : node_(node), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool is_null() const;
  bool is_list() const;
  bool is_object() const;
  bool is_text() const;

  /// Returns whether the key exists and is not null.
  bool has(std::string_view key) const;
  /// Returns whether the key exists; its value may be null.
  bool mentions(std::string_view key) const;
  Component at(std::string_view key) const;
  Component item(size_t index) const;
  std::vector<Component> items() const;
  std::vector<std::pair<std::string, Component>> fields() const;

  std::string text() const;
  bool flag() const;
  int64_t whole() const;
  double number() const;

  // The value of a key; the default if it is missing or null.
  std::string text(std::string_view key, std::string_view otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  int64_t whole(std::string_view key, int64_t otherwise) const;
  /// The text of a key, which is one code point.
  char32_t code_point(std::string_view key) const;

  /// Returns the value as JSON.
  std::string json() const;
  /// The value of "type".
  std::string kind() const;
  /// Throws Error "text.component": the kind is not a known one.
  [[noreturn]] void refuse_kind(std::string_view what,
                                const std::vector<std::string_view>& known) const;
  /// Throws Error "text.file".
  [[noreturn]] void fail(std::string_view problem) const;

 private:
  const void* node_;
  std::string where_;
};

/// A kind of component, and the function that makes a part of the tokenizer from it.
template <class Part>
struct ComponentKind {
  std::string_view name;
  Part (*read)(const Component& component);
};

/// Reads a component by the table of its kinds. Empty for null. Throws Error "text.component" for another kind.
template <class Part>
Part read_kind(const Component& component, std::string_view what,
               const std::vector<ComponentKind<Part>>& kinds) {
  if (component.is_null()) return {};
  const std::string kind = component.kind();
  std::vector<std::string_view> known;
  for (const auto& [name, read] : kinds) {
    if (name == kind) return read(component);
    known.push_back(name);
  }
  component.refuse_kind(what, known);
}

/// The parts of a Sequence that are not null.
template <class Part>
std::vector<Part> read_parts(const Component& list, Part (*read)(const Component&)) {
  std::vector<Part> parts;
  for (const Component& item : list.items()) {
    if (Part part = read(item)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace levin::text
