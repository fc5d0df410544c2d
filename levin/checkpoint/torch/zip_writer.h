#pragma once
// ZipWriter: a zip archive as PyTorch writes it: uncompressed records at multiples of 64 bytes.
// ZipRecords reads it. Not for users.
//
//   ZipWriter zip([&](std::span<const std::byte> bytes) { file.write(bytes); });
//   zip.add("data.pkl", pickle);
//   zip.finish();

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace levin::detail {

class ZipWriter {
 public:
  static constexpr uint64_t kAlignment =
      64;  ///< as torch.save's, which it says in .storage_alignment
  using Sink = std::function<void(std::span<const std::byte> bytes)>;

  explicit ZipWriter(Sink sink);
  ~ZipWriter();
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  /// Throws what the sink threw.
  void add(const std::string& name, std::string_view text);
  void add(const std::string& name, std::span<const std::byte> bytes);
  /// Writes the directory, without which nobody reads the archive. Throws what the sink threw.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::detail
