#pragma once
// ZipRecords: the records of a zip file as PyTorch writes it, where they lie in a memory map.
// Not for users.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace caffe2::serialize {
class PyTorchStreamReader;
}  // namespace caffe2::serialize

namespace levin::detail {

class ZipRecords {
 public:
  /// bytes outlive this. Throws std::exception where it is no whole archive of PyTorch 1.6 or newer.
  explicit ZipRecords(std::span<const std::byte> bytes);
  ~ZipRecords();
  ZipRecords(const ZipRecords&) = delete;
  ZipRecords& operator=(const ZipRecords&) = delete;

  /// Returns the names without the archive's name, which precedes each record's; nothing if one has
  /// another.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// Returns a record that is stored uncompressed; nothing if it is damaged or missing.
  std::optional<std::span<const std::byte>> find(const std::string& name) const;
  /// The size that the archive says it has; none where it is damaged or not there.
  std::optional<size_t> size(const std::string& name) const;
  /// A record that may be compressed; none where it is damaged or not there.
  std::optional<std::string> text(const std::string& name) const;

 private:
  std::span<const std::byte> bytes_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
};

}  // namespace levin::detail
