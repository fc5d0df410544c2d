#include "levin/checkpoint/torch/zip_records.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstring>

namespace levin::detail {
namespace {

/// The bytes of an archive, for LibTorch's reader of zip files.
class Bytes final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t at, void* to, size_t count, const char*) const override {
    if (at >= bytes_.size()) return 0;
    const size_t taken = std::min<size_t>(count, bytes_.size() - at);
    std::memcpy(to, bytes_.data() + at, taken);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

ZipRecords::ZipRecords(std::span<const std::byte> bytes)
    : bytes_(bytes),
      reader_(std::make_unique<caffe2::serialize::PyTorchStreamReader>(
          std::make_shared<Bytes>(bytes))) {}

ZipRecords::~ZipRecords() = default;

// LibTorch refuses a record that lies outside of the archive's folder.
std::vector<std::string> ZipRecords::names() const {
  try {
    return reader_->getAllRecords();
  } catch (const std::exception&) {
    return {};
  }
}

bool ZipRecords::contains(const std::string& name) const { return reader_->hasRecord(name); }

std::optional<std::span<const std::byte>> ZipRecords::find(const std::string& name) const {
  try {
    if (!reader_->hasRecord(name)) return std::nullopt;
    const size_t size = reader_->getRecordSize(name), begin = reader_->getRecordOffset(name);
    if (begin > bytes_.size() || size > bytes_.size() - begin) return std::nullopt;
    return bytes_.subspan(begin, size);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<size_t> ZipRecords::size(const std::string& name) const {
  try {
    if (!reader_->hasRecord(name)) return std::nullopt;
    return reader_->getRecordSize(name);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<std::string> ZipRecords::text(const std::string& name) const {
  try {
    if (!reader_->hasRecord(name)) return std::nullopt;
    const auto [data, size] = reader_->getRecord(name);
    return std::string(static_cast<const char*>(data.get()), size);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace levin::detail
