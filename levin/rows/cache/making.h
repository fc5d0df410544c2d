#pragma once
// Making: a file's rows become tokens, by several threads, and are written in the file's order. Not for users.

#include <filesystem>
#include <string>

#include "levin/rows/cache/cache.h"

namespace levin::text::row {

void make_tokens(const Wanted& wanted, const std::filesystem::path& path,
                 const std::string& fingerprint);

}  // namespace levin::text::row
