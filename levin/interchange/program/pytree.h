#pragma once
// PyTree: how Python's tuples, lists and dicts become the flat inputs and outputs of a program, as
// torch.utils._pytree's treespec_dumps writes it.
//
//   const PyTree tree = PyTree::parse(R"([1, {"type": "builtins.tuple", ...}])");
//   std::vector<c10::IValue> leaves = tree.flatten(arguments, "arguments");
//   c10::IValue output = tree.unflatten(leaves);

#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::interchange {

class LEVIN_API PyTree {
 public:
  /// Throws Error "interchange.archive".
  static PyTree parse(std::string_view text);

  bool is_leaf() const { return type_.empty(); }
  /// "builtins.dict", "transformers.modeling_outputs.CausalLMOutput"; empty for a leaf.
  const std::string& type() const { return type_; }
  /// Returns the keys of a dict, or an object's names of fields; empty where children are known by their place.
  const std::vector<std::string>& keys() const { return keys_; }
  const std::vector<PyTree>& children() const { return children_; }
  size_t num_leaves() const { return num_leaves_; }
  /// "past.0.key", in their order: prefix and the keys or places, joined by dots.
  std::vector<std::string> leaf_names(const std::string& prefix) const;

  /// Takes tuples and lists for what has places, and dicts with text keys for what has keys. Throws
  /// Error "interchange.input", which names the part by `name`.
  std::vector<c10::IValue> flatten(const c10::IValue& value, const std::string& name) const;
  /// Tuples are tuples; lists are lists; what has keys is a dict of text to anything.
  c10::IValue unflatten(std::span<const c10::IValue> leaves) const;

 private:
  struct Reader;
  void add_names(const std::string& prefix, std::vector<std::string>& names) const;
  void add_leaves(const c10::IValue& value, const std::string& name,
                  std::vector<c10::IValue>& leaves) const;
  std::string child_name(const std::string& prefix, size_t child) const;

  std::string type_;
  std::vector<std::string> keys_;
  std::vector<PyTree> children_;
  size_t num_leaves_ = 1;
};

}  // namespace levin::interchange
