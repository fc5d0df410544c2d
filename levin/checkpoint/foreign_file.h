#pragma once
// What kind of file of weights one is that levin does not read, by its first bytes.

#include <filesystem>
#include <string_view>

namespace levin::detail {

/// "a GGUF file (llama.cpp)"; empty for a file of no such kind.
std::string_view foreign_kind(const std::filesystem::path& file);

}  // namespace levin::detail
