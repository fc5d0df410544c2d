#pragma once
// OperatorAliases: the arguments that an operator writes to, and whether all its results are views.

#include <ATen/core/function_schema.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "levin/graph/operator_info.h"

namespace levin::fsdp {

class OperatorAliases {
 public:
  struct Aliases {
    std::vector<size_t> written;    ///< indices of arguments
    bool gives_views_only = false;  ///< all results are views, so it reads no values
  };

  /// Operators live as long as the program.
  const Aliases& of(const c10::FunctionSchema& schema) {
    const auto known = all_.find(&schema);
    if (known != all_.end()) return known->second;
    Aliases aliases{.written = graph::written_arguments(schema)};
    aliases.gives_views_only = aliases.written.empty() && !schema.returns().empty();
    for (const c10::Argument& result : schema.returns()) {
      aliases.gives_views_only &= result.alias_info() != nullptr;
    }
    return all_.emplace(&schema, std::move(aliases)).first->second;
  }

 private:
  ska::flat_hash_map<const c10::FunctionSchema*, Aliases> all_;
};

}  // namespace levin::fsdp
