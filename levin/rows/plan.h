#pragma once
// Plan: what the options, the tokenizer and a file's first row say together: the task, its columns, the
// length of a sample. Not for users.
//
//   const Plan plan = make_plan(first, tokenizer, options);
//   plan.columns["label"];                               // "section"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/sources/sources.h"
#include "levin/rows/rows.h"

namespace levin::text::row {

/// A task's parts, by the names of RowsOptions' table, and which columns they are.
class Columns {
 public:
  void put(std::string_view role, std::string column) {
    by_role_.insert_or_assign(std::string(role), std::move(column));
  }
  bool has(std::string_view role) const { return by_role_.contains(role); }
  const std::string& operator[](std::string_view role) const { return by_role_.find(role)->second; }
  const std::map<std::string, std::string, std::less<>>& all() const { return by_role_; }

 private:
  std::map<std::string, std::string, std::less<>> by_role_;
};

struct Plan {
  RowsOptions options;
  std::string task;
  Columns columns;
  std::vector<std::string> negatives;  ///< columns of one text each, for embed
  bool in_chats = false;               ///< sft, dpo: rows are messages
  bool completion_only = false;
  std::string eos;                    ///< empty: none
  std::optional<int64_t> max_length;  ///< unset: no limit

  /// A token is predicted from those before it.
  bool is_causal() const { return task == "lm" || task == "sft" || task == "dpo"; }
  bool splits() const { return options.packing && options.packing_strategy == "bfd_split"; }
};

/// Throws Error "text.rows.options" where values do not exist or exclude each other.
void check_options(const RowsOptions& options);

/// Throws Error "text.rows.columns", "text.rows.options", "text.rows.generation", "text.rows.tokenizer".
Plan make_plan(const data::Record& first, const Tokenizer& tokenizer, const RowsOptions& options);

/// Sets task, columns, negatives and in_chats. Throws Error "text.rows.columns".
LEVIN_API void find_columns(const data::Record& first, Plan& plan);

}  // namespace levin::text::row
