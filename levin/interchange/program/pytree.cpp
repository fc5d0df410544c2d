#include "levin/interchange/program/pytree.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"

namespace levin::interchange {
namespace {

using nlohmann::json;

constexpr int kDeepestTree = 100;

[[noreturn]] void fail(std::string_view what) {
  LEVIN_FAIL("interchange.archive",
             "the tree of the program's inputs or outputs cannot be read: {}; export it again with "
             "torch.export.save",
             what);
}

/// A dict's keys, or the names of an object's fields: the context is a list of them, in one of the forms
/// that Python's flatten functions write.
std::vector<std::string> keys_in(const json& context, size_t count) {
  const json* list = &context;
  // defaultdict: [factory, [keys]]; some classes: [keys, ...]
  if (context.is_array() && context.size() == 2 && context[1].is_array()) list = &context[1];
  if (!list->is_array() || list->size() != count) return {};
  std::vector<std::string> keys;
  for (const json& key : *list) {
    if (!key.is_string() && !key.is_number_integer()) return {};
    keys.push_back(key.is_string() ? key.get<std::string>() : key.dump());
  }
  return keys;
}

bool has_places(std::string_view type) {
  return type == "builtins.tuple" || type == "builtins.list" || type == "collections.deque" ||
         type == "collections.namedtuple";
}

}  // namespace

struct PyTree::Reader {
  static PyTree read(const json& node, int depth);
};

PyTree PyTree::Reader::read(const json& node, int depth) {
  if (depth > kDeepestTree) fail("it is too deep");
  const auto type = node.find("type"), children = node.find("children_spec");
  if (!node.is_object() || type == node.end() || children == node.end() || !children->is_array()) {
    fail("a part has no type or children");
  }
  PyTree tree;
  if (type->is_null()) return tree;
  if (!type->is_string()) fail("a type is not a string");
  tree.type_ = type->get<std::string>();
  tree.num_leaves_ = 0;
  for (const json& child : *children) {
    tree.children_.push_back(read(child, depth + 1));
    tree.num_leaves_ += tree.children_.back().num_leaves_;
  }
  const auto context = node.find("context");
  if (context != node.end() && context->is_string() && !has_places(tree.type_)) {
    const json keys = json::parse(detail::shallow_json(context->get_ref<const std::string&>()),
                                  nullptr, /*allow_exceptions=*/false);
    tree.keys_ = keys_in(keys, tree.children_.size());
  }
  return tree;
}

PyTree PyTree::parse(std::string_view text) {
  const json whole = json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (!whole.is_array() || whole.size() != 2 || whole[0] != 1) {
    fail(fmt::format("got '{}', wanted version 1", printable(text.substr(0, 40))));
  }
  return Reader::read(whole[1], 0);
}

std::string PyTree::child_name(const std::string& prefix, size_t child) const {
  const std::string own = keys_.empty() ? std::to_string(child) : keys_[child];
  return prefix.empty() ? own : prefix + "." + own;
}

void PyTree::add_names(const std::string& prefix, std::vector<std::string>& names) const {
  if (is_leaf()) return names.push_back(prefix);
  for (size_t i = 0; i < children_.size(); ++i)
    children_[i].add_names(child_name(prefix, i), names);
}

std::vector<std::string> PyTree::leaf_names(const std::string& prefix) const {
  std::vector<std::string> names;
  add_names(prefix, names);
  return names;
}

std::vector<c10::IValue> PyTree::flatten(const c10::IValue& value, const std::string& name) const {
  std::vector<c10::IValue> leaves;
  add_leaves(value, name, leaves);
  return leaves;
}

void PyTree::add_leaves(const c10::IValue& value, const std::string& name,
                        std::vector<c10::IValue>& leaves) const {
  if (is_leaf()) return leaves.push_back(value);
  if (!keys_.empty()) {
    LEVIN_CHECK(value.isGenericDict(), "interchange.input",
                "{} is {}, wanted a dict with {} as in the program", name, value.tagKind(),
                fmt::join(keys_, ", "));
    const auto dict = value.toGenericDict();
    for (size_t i = 0; i < keys_.size(); ++i) {
      const auto found = dict.find(keys_[i]);
      LEVIN_CHECK(found != dict.end(), "interchange.input",
                  "{} has no '{}', but the program takes it", name, keys_[i]);
      children_[i].add_leaves(found->value(), child_name(name, i), leaves);
    }
    for (const auto& entry : dict) {
      LEVIN_CHECK(entry.key().isString() &&
                      std::ranges::find(keys_, entry.key().toStringRef()) != keys_.end(),
                  "interchange.input",
                  "{} has the key '{}', which the program does not take; wanted {}", name,
                  entry.key().isString() ? entry.key().toStringRef() : entry.key().tagKind(),
                  fmt::join(keys_, ", "));
    }
    return;
  }
  std::vector<c10::IValue> items;
  if (value.isTuple()) {
    items = value.toTupleRef().elements().vec();
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toList()) items.push_back(item);
  } else {
    LEVIN_FAIL("interchange.input", "{} is {}, wanted a list or tuple of {} as in the program",
               name, value.tagKind(), children_.size());
  }
  LEVIN_CHECK(items.size() == children_.size(), "interchange.input",
              "{} has {} parts, but the program takes {}", name, items.size(), children_.size());
  for (size_t i = 0; i < items.size(); ++i) {
    children_[i].add_leaves(items[i], child_name(name, i), leaves);
  }
}

c10::IValue PyTree::unflatten(std::span<const c10::IValue> leaves) const {
  if (is_leaf()) return leaves.front();
  std::vector<c10::IValue> items;
  for (const PyTree& child : children_) {
    items.push_back(child.unflatten(leaves.first(child.num_leaves_)));
    leaves = leaves.subspan(child.num_leaves_);
  }
  if (!keys_.empty()) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    for (size_t i = 0; i < keys_.size(); ++i) dict.insert(keys_[i], items[i]);
    return dict;
  }
  if (type_ != "builtins.list") return c10::ivalue::Tuple::create(std::move(items));
  if (std::ranges::all_of(items, &c10::IValue::isTensor)) {
    c10::List<at::Tensor> tensors;
    for (const c10::IValue& item : items) tensors.push_back(item.toTensor());
    return tensors;
  }
  c10::impl::GenericList list(c10::AnyType::get());
  for (const c10::IValue& item : items) list.push_back(item);
  return list;
}

}  // namespace levin::interchange
