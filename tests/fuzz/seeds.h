#pragma once
// Small valid files for the fuzzers to begin with.

#include <filesystem>

namespace levin::fuzz {

/// A folder below `root` for each fuzzer, by its name.
void put_seeds(const std::filesystem::path& root);

}  // namespace levin::fuzz
