#pragma once
// The texts that users read, README.md and the guides, line by line. docs/api is made by doxygen.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace levin::test {

/// README.md, CONTRIBUTING.md, CHANGELOG.md and docs/**/*.md, as far as they exist below `root`.
inline std::vector<std::filesystem::path> guides(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> found;
  for (const char* name : {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}) {
    if (std::filesystem::exists(root / name)) found.push_back(root / name);
  }
  if (!std::filesystem::exists(root / "docs")) return found;
  for (auto entry = std::filesystem::recursive_directory_iterator(root / "docs");
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    if (entry->path() == root / "docs/api") entry.disable_recursion_pending();
    if (entry->path().extension() == ".md") found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

struct GuideLine {
  size_t number;  ///< from 1
  std::string text;
  bool is_code;  ///< in a block between ```, or one of its fences
};

inline std::vector<GuideLine> lines_of(const std::filesystem::path& guide) {
  std::vector<GuideLine> lines;
  std::ifstream in(guide);
  bool in_block = false;
  for (std::string text; std::getline(in, text);) {
    const bool is_fence = text.find("```") == text.find_first_not_of(' ') && !text.empty();
    if (is_fence) in_block = !in_block;
    lines.push_back({lines.size() + 1, text, in_block || is_fence});
  }
  return lines;
}

}  // namespace levin::test
