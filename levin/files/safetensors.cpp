#include "levin/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/safetensors/header_impl.h"

namespace levin::files {
namespace {

void check_bytes(const std::string& file, const std::string& name, const std::string& dtype,
                 const std::vector<int64_t>& shape, size_t num_bytes) {
  const int64_t wanted = detail::tensor_bytes(file, name, dtype, shape);
  LEVIN_CHECK(static_cast<uint64_t>(wanted) == num_bytes, "files.safetensors",
              "{}: tensor '{}' has {} bytes of data, wanted {} for {} [{}]", file, printable(name),
              num_bytes, wanted, dtype, fmt::join(shape, ", "));
}

/// Views into data, which the tensors must cover without hole or overlap.
std::vector<TensorEntry> make_entries(std::vector<detail::HeaderEntry> entries,
                                      std::span<const std::byte> data, const std::string& file) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::vector<TensorEntry> result;
  uint64_t offset = 0;
  for (detail::HeaderEntry& entry : entries) {
    LEVIN_CHECK(entry.begin == offset && entry.end >= entry.begin, "files.safetensors",
                "{}: tensor '{}' has data_offsets [{}, {}], wanted a start at {}, where the tensor "
                "before ends; the file is damaged",
                file, printable(entry.name), entry.begin, entry.end, offset);
    LEVIN_CHECK(entry.end <= data.size(), "files.safetensors",
                "{}: tensor '{}' ends at byte {} of the data, which has {}; the file is truncated",
                file, printable(entry.name), entry.end, data.size());
    const auto view = data.subspan(entry.begin, entry.end - entry.begin);
    check_bytes(file, entry.name, entry.dtype, entry.shape, view.size());
    result.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), view});
    offset = entry.end;
  }
  LEVIN_CHECK(offset == data.size(), "files.safetensors",
              "{}: {} bytes of data follow the last tensor, which ends at byte {} of the data; the "
              "file is damaged",
              file, data.size() - offset, offset);
  return result;
}

}  // namespace

FileDigest write_safetensors(const std::filesystem::path& path,
                             std::span<const TensorEntry> tensors, const TensorMetadata& metadata) {
  const std::string name = path.string();
  std::vector<TensorDescription> described;
  std::map<std::string_view, std::span<const std::byte>> data;
  for (const TensorEntry& tensor : tensors) {
    described.push_back({tensor.name, tensor.dtype, tensor.shape});
    check_bytes(name, tensor.name, tensor.dtype, tensor.shape, tensor.data.size());
    data[tensor.name] = tensor.data;
  }
  const SafetensorsLayout layout(described, metadata, name);
  FileWriter file(path);
  file.write(layout.header());
  for (const SafetensorsLayout::Place& place : layout.places()) file.write(data.at(place.name));
  return file.close();
}

struct SafetensorsFile::Contents {
  MemoryMap map;
  std::vector<TensorEntry> entries;
  std::map<std::string_view, const TensorEntry*> by_name;
  TensorMetadata metadata;

  Contents(MemoryMap opened, const std::string& file) : map(std::move(opened)) {
    const std::string_view text = detail::header_text(map.bytes(), file);
    detail::Header header = detail::parse_header(text, file);
    metadata = std::move(header.metadata);
    entries = make_entries(std::move(header.entries),
                           map.bytes().subspan(detail::kLengthBytes + text.size()), file);
    for (const TensorEntry& entry : entries) by_name.emplace(entry.name, &entry);
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(MemoryMap(path), path.string()) {}

SafetensorsFile::SafetensorsFile(MemoryMap map, const std::string& file)
    : contents_(std::make_shared<const Contents>(std::move(map), file)) {}

const std::vector<TensorEntry>& SafetensorsFile::entries() const { return contents_->entries; }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = contents_->by_name.find(name);
  return found == contents_->by_name.end() ? nullptr : found->second;
}

const TensorMetadata& SafetensorsFile::metadata() const { return contents_->metadata; }

}  // namespace levin::files
