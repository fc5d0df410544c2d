#pragma once
// OutputTree: what forward returned as a flat list and its structure, as torch.utils._pytree's
// treespec_dumps writes it. PyTree reads it.
// Not for users.

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace levin::interchange {

struct OutputTree {
  std::vector<c10::IValue> leaves;
  std::string text;
};

/// Takes tuples, lists and dicts of text to anything. Throws Error "interchange.export.output" for other
/// objects.
OutputTree output_tree_of(const c10::IValue& value);

/// The structure of a call's arguments: that many by position, and none by name.
std::string input_tree_of(size_t num_arguments);

}  // namespace levin::interchange
