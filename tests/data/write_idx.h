#pragma once
// Writes IDX files for tests, into a folder that goes away with the test.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace levin::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "levin_data_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline char idx_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return 0x08;
    case at::kChar:
      return 0x09;
    case at::kShort:
      return 0x0B;
    case at::kInt:
      return 0x0C;
    case at::kFloat:
      return 0x0D;
    default:
      return 0x0E;
  }
}

inline void write_idx(const std::filesystem::path& file, const at::Tensor& tensor) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << '\0' << '\0' << idx_type(tensor.scalar_type()) << static_cast<char>(tensor.dim());
  const auto big_endian = [&](const char* bytes, size_t size) {
    std::string reversed(bytes, size);
    std::reverse(reversed.begin(), reversed.end());
    out << reversed;
  };
  for (const int64_t size : tensor.sizes()) {
    const auto word = static_cast<uint32_t>(size);
    big_endian(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    big_endian(data + i * tensor.element_size(), tensor.element_size());
  }
}

}  // namespace levin::test
