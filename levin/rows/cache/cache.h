#pragma once
// The cache of token files: where they lie, what they belong to, who makes one. Not for users.
//
//   auto tokens = open_tokens({records, plan, tokenizer});

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/data/sources/sources.h"
#include "levin/rows/cache/token_file.h"
#include "levin/rows/plan.h"

namespace levin::text::row {

struct Wanted {
  const data::Records& records;
  const Plan& plan;
  const Tokenizer& tokenizer;
  std::optional<LabelSet> known = {};  ///< labels of another file
};

/// Returns the fingerprint of the text file's bytes, the tokenizer and the options that decide
/// tokens and rows.
LEVIN_API std::string fingerprint_of(const Wanted& wanted);

/// Throws Error "text.rows.options" where no folder is named and none is known.
LEVIN_API std::filesystem::path cache_folder(const RowsOptions& options);
LEVIN_API std::filesystem::path cache_path(const Wanted& wanted, const std::string& fingerprint);

/// Returns the existing file, or one that this process makes. One process of a machine makes it
/// while others wait for it; if it dies the next one sees no complete file.
LEVIN_API std::shared_ptr<const TokenFile> open_tokens(const Wanted& wanted, bool& from_cache);

}  // namespace levin::text::row
