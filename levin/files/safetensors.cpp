#include "levin/files/safetensors.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/files/memory_map.h"
#include "levin/files/safetensors_header_impl.h"

namespace levin::files {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as Hugging Face's reader

struct Dtype {
  std::string_view name;
  int64_t bytes;
};

/// In Hugging Face's order, narrow to wide: files are written from the last to the first.
constexpr std::array<Dtype, 19> kDtypes = {{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E8M0", 1},
                                            {"F8_E4M3FNUZ", 1},
                                            {"F8_E5M2FNUZ", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"C64", 8},
                                            {"F64", 8},
                                            {"I64", 8},
                                            {"U64", 8}}};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

/// Bytes of a tensor; nothing where the shape is negative or the product leaves 64 bits.
std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, const Dtype& dtype) {
  int64_t bytes = dtype.bytes;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Of the tensor's dtype; throws what is wrong with the tensor by itself.
const Dtype* check_tensor(const std::string& file, const std::string& name,
                          const std::string& dtype_name, const std::vector<int64_t>& shape,
                          uint64_t num_bytes) {
  const Dtype* dtype = find_dtype(dtype_name);
  LEVIN_CHECK(dtype != nullptr, "files.safetensors", "{}: tensor '{}' has the unknown dtype '{}'",
              file, printable(name), printable(dtype_name));
  const auto wanted = tensor_bytes(shape, *dtype);
  LEVIN_CHECK(wanted, "files.safetensors", "{}: tensor '{}': no tensor can have the shape {}", file,
              printable(name), shape_text(shape));
  LEVIN_CHECK(static_cast<uint64_t>(*wanted) == num_bytes, "files.safetensors",
              "{}: tensor '{}' has {} bytes of data, wanted {} for {} {}", file, printable(name),
              num_bytes, *wanted, dtype_name, shape_text(shape));
  return dtype;
}

std::string quoted(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    LEVIN_FAIL("files.safetensors", "{}: the text '{}' is not UTF-8; name it otherwise", file,
               text);
  }
}

/// The tensors in the order of their data.
std::vector<const TensorEntry*> file_order(std::span<const TensorEntry> tensors,
                                           const std::string& file) {
  std::vector<std::pair<const Dtype*, const TensorEntry*>> order;
  for (const TensorEntry& tensor : tensors) {
    LEVIN_CHECK(tensor.name != "__metadata__", "files.safetensors",
                "{}: no tensor can be named __metadata__; rename it", file);
    order.emplace_back(
        check_tensor(file, tensor.name, tensor.dtype, tensor.shape, tensor.data.size()), &tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->name < b.second->name;
  });
  std::vector<const TensorEntry*> sorted;
  for (const auto& [dtype, tensor] : order) sorted.push_back(tensor);
  return sorted;
}

std::string make_header(const std::vector<const TensorEntry*>& tensors,
                        const TensorMetadata& metadata, const std::string& file) {
  std::string pairs;
  for (const auto& [key, value] : metadata) {
    pairs += (pairs.empty() ? "" : ",") + quoted(key, file) + ":" + quoted(value, file);
  }
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":{" + pairs + "}";
  size_t offset = 0;
  for (const TensorEntry* tensor : tensors) {
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() == 1 ? "" : ",", quoted(tensor->name, file), tensor->dtype,
                          fmt::join(tensor->shape, ","), offset, offset + tensor->data.size());
    offset += tensor->data.size();
  }
  header += "}";
  header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return header;
}

/// The header's text, its length checked against the file.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  LEVIN_CHECK(bytes.size() >= kLengthBytes, "files.safetensors",
              "{}: the file ends at byte {}, wanted at least {}; it is truncated", file,
              bytes.size(), kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  LEVIN_CHECK(length <= kMaxHeaderBytes, "files.safetensors",
              "{}: a header of {} bytes at byte 0, wanted at most {}; this is no safetensors file",
              file, length, kMaxHeaderBytes);
  LEVIN_CHECK(length <= bytes.size() - kLengthBytes, "files.safetensors",
              "{}: the file ends at byte {}, inside its header of {} bytes; it is truncated", file,
              bytes.size(), length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  LEVIN_CHECK(text.starts_with('{'), "files.safetensors",
              "{}: no '{{' at byte {}; this is no safetensors file", file, kLengthBytes);
  // nlohmann's parser would take a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  LEVIN_CHECK(zero == std::string_view::npos, "files.safetensors",
              "{}: a zero byte in the header, at byte {}; the file is damaged", file,
              zero + kLengthBytes);
  return text;
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
                "{}: tensor '{}' has data_offsets [{}, {}], wanted to start at {} where the one "
                "before ends; the file is damaged",
                file, printable(entry.name), entry.begin, entry.end, offset);
    LEVIN_CHECK(entry.end <= data.size(), "files.safetensors",
                "{}: tensor '{}' ends at byte {} of the data, which has {}; the file is truncated",
                file, printable(entry.name), entry.end, data.size());
    const auto view = data.subspan(entry.begin, entry.end - entry.begin);
    check_tensor(file, entry.name, entry.dtype, entry.shape, view.size());
    result.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), view});
    offset = entry.end;
  }
  LEVIN_CHECK(offset == data.size(), "files.safetensors",
              "{}: {} bytes of data after the last tensor, which ends at byte {} of the data; the "
              "file is damaged",
              file, data.size() - offset, offset);
  return result;
}

}  // namespace

FileDigest write_safetensors(const std::filesystem::path& path,
                             std::span<const TensorEntry> tensors, const TensorMetadata& metadata) {
  const std::string name = path.string();
  const auto order = file_order(tensors, name);
  std::vector<std::string_view> names;
  for (const TensorEntry* tensor : order) names.push_back(tensor->name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  LEVIN_CHECK(twice == names.end(), "files.safetensors", "{}: two tensors are named '{}'", name,
              *twice);
  const std::string header = make_header(order, metadata, name);
  LEVIN_CHECK(
      header.size() <= kMaxHeaderBytes, "files.safetensors",
      "{}: {} tensors make a header of {} bytes, more than readers take ({}); write them to "
      "several files",
      name, tensors.size(), header.size(), kMaxHeaderBytes);
  const uint64_t length = header.size();
  FileWriter file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorEntry* tensor : order) file.write(tensor->data);
  return file.close();
}

struct SafetensorsFile::Contents {
  MemoryMap map;
  std::vector<TensorEntry> entries;
  std::map<std::string_view, const TensorEntry*> by_name;
  TensorMetadata metadata;

  explicit Contents(const std::filesystem::path& path) : map(path) {
    const std::string file = path.string();
    const std::string_view text = header_text(map.bytes(), file);
    detail::Header header = detail::parse_header(text, file);
    metadata = std::move(header.metadata);
    entries = make_entries(std::move(header.entries),
                           map.bytes().subspan(kLengthBytes + text.size()), file);
    for (const TensorEntry& entry : entries) by_name.emplace(entry.name, &entry);
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : contents_(std::make_shared<const Contents>(path)) {}

const std::vector<TensorEntry>& SafetensorsFile::entries() const { return contents_->entries; }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = contents_->by_name.find(name);
  return found == contents_->by_name.end() ? nullptr : found->second;
}

const TensorMetadata& SafetensorsFile::metadata() const { return contents_->metadata; }

}  // namespace levin::files
