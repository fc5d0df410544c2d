#include "levin/interchange/export/record/output_tree.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <nlohmann/json.hpp>

#include "levin/base/check.h"

namespace levin::interchange {
namespace {

using nlohmann::json;

json node(json type, json context, json children) {
  return {{"type", std::move(type)},
          {"context", std::move(context)},
          {"children_spec", std::move(children)}};
}

json tree_of(const c10::IValue& value, std::vector<c10::IValue>& leaves) {
  json children = json::array();
  if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) {
      children.push_back(tree_of(item, leaves));
    }
    return node("builtins.tuple", "null", std::move(children));
  }
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) children.push_back(tree_of(item, leaves));
    return node("builtins.list", "null", std::move(children));
  }
  if (value.isGenericDict()) {
    json keys = json::array();
    for (const auto& entry : value.toGenericDict()) {
      LEVIN_CHECK(entry.key().isString(), "interchange.export.output",
                  "forward returns a dict with the key {}, wanted a string", c10::str(entry.key()));
      keys.push_back(entry.key().toStringRef());
      children.push_back(tree_of(entry.value(), leaves));
    }
    return node("builtins.dict", keys.dump(), std::move(children));
  }
  LEVIN_CHECK(
      value.isTensor() || value.isNone() || value.isInt() || value.isBool() || value.isDouble(),
      "interchange.export.output",
      "forward returns a {}; wanted tensors and numbers, and tuples, lists and dicts of them",
      value.tagKind());
  leaves.push_back(value);
  return node(nullptr, nullptr, std::move(children));
}

std::string text_of(json tree) { return json::array({1, std::move(tree)}).dump(); }

}  // namespace

OutputTree output_tree_of(const c10::IValue& value) {
  OutputTree made;
  made.text = text_of(tree_of(value, made.leaves));
  return made;
}

std::string input_tree_of(size_t num_arguments) {
  json positional = json::array();
  for (size_t i = 0; i < num_arguments; ++i) {
    positional.push_back(node(nullptr, nullptr, json::array()));
  }
  return text_of(node("builtins.tuple", "null",
                      json::array({node("builtins.tuple", "null", std::move(positional)),
                                   node("builtins.dict", "[]", json::array())})));
}

}  // namespace levin::interchange
