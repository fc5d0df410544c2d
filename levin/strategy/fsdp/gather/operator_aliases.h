#pragma once
// OperatorAliases: which of its arguments an operator writes to, and whether it gives views alone.

#include <ATen/core/function_schema.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace levin::fsdp {

class OperatorAliases {
 public:
  struct Aliases {
    std::vector<size_t> written;    ///< numbers of arguments
    bool gives_views_only = false;  ///< it reads no values
  };

  /// Operators live as long as the program.
  const Aliases& of(const c10::FunctionSchema& schema) {
    const auto known = all_.find(&schema);
    if (known != all_.end()) return known->second;
    Aliases aliases;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) aliases.written.push_back(i);
    }
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
