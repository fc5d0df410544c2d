#pragma once
// A folder for one test, removed at its end, and files as strings of bytes.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace levin::test {

class Scratch {
 public:
  Scratch() {
    std::string name = std::filesystem::path(::testing::TempDir()) / "levin_test_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }
  const std::filesystem::path& path() const { return folder_; }
  std::string str() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

inline std::filesystem::path put(const std::filesystem::path& path, std::string_view bytes) {
  // A new file each time: ext4 writes a file that is emptied and filled again to the disk at once.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// In the order of the alphabet.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace levin::test
