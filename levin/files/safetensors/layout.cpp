#include "levin/files/safetensors/layout.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/safetensors/header_impl.h"

namespace levin::files {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr size_t kLengthBytes = detail::kLengthBytes;

struct Dtype {
  std::string_view name;
  int64_t bits;
};

/// In Hugging Face's order: files are written from the last to the first.
constexpr std::array<Dtype, 22> kDtypes = {
    {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
     {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
     {"I64", 64},        {"U64", 64}}};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

/// Returns the dtype of that name, or throws if it is unknown.
const Dtype* checked_dtype(const std::string& file, const std::string& name,
                           const std::string& dtype_name) {
  const Dtype* dtype = find_dtype(dtype_name);
  LEVIN_CHECK(dtype != nullptr, "files.safetensors", "{}: tensor '{}' has the unknown dtype '{}'",
              file, printable(name), printable(dtype_name));
  return dtype;
}

std::string quoted(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    LEVIN_FAIL("files.safetensors", "{}: the text '{}' is not UTF-8; rename it", file, text);
  }
}

/// In the order of their data.
std::vector<TensorDescription> sorted(std::vector<TensorDescription> tensors,
                                      const std::string& file) {
  for (const TensorDescription& tensor : tensors) {
    LEVIN_CHECK(tensor.name != "__metadata__", "files.safetensors",
                "{}: a tensor has the reserved name __metadata__; rename it", file);
    checked_dtype(file, tensor.name, tensor.dtype);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const Dtype* first = find_dtype(a.dtype);
    const Dtype* second = find_dtype(b.dtype);
    return first != second ? first > second : a.name < b.name;
  });
  return tensors;
}

void check_names(const std::vector<TensorDescription>& tensors, const std::string& file) {
  std::vector<std::string_view> names;
  for (const TensorDescription& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  LEVIN_CHECK(twice == names.end(), "files.safetensors", "{}: two tensors are named '{}'", file,
              *twice);
}

std::string metadata_text(const TensorMetadata& metadata, const std::string& file) {
  std::string pairs;
  for (const auto& [key, value] : metadata) {
    pairs += (pairs.empty() ? "" : ",") + quoted(key, file) + ":" + quoted(value, file);
  }
  return metadata.empty() ? "" : "\"__metadata__\":{" + pairs + "}";
}

/// The JSON behind its length; the places' bytes are those of the data.
std::string header_of(const std::vector<SafetensorsLayout::Place>& places,
                      const TensorMetadata& metadata, const std::string& file) {
  std::string json = "{" + metadata_text(metadata, file);
  for (const SafetensorsLayout::Place& place : places) {
    json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json.size() == 1 ? "" : ",", quoted(place.name, file), place.dtype,
                        fmt::join(place.shape, ","), place.begin, place.end);
  }
  json += "}";
  json.resize((json.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  LEVIN_CHECK(json.size() <= detail::kMaxHeaderBytes, "files.safetensors",
              "{}: {} tensors make a header of {} bytes, but readers accept at most {}; write the "
              "tensors to several files",
              file, places.size(), json.size(), detail::kMaxHeaderBytes);
  const uint64_t length = json.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, kLengthBytes);
  return header + json;
}

}  // namespace

namespace detail {

int64_t tensor_bytes(const std::string& file, const std::string& name,
                     const std::string& dtype_name, const std::vector<int64_t>& shape) {
  int64_t bits = checked_dtype(file, name, dtype_name)->bits;
  int64_t stride = bits;  // strides fit into 64 bits for an empty tensor too
  for (const int64_t size : shape) {
    const bool fits = size >= 0 && !__builtin_mul_overflow(bits, size, &bits) &&
                      !__builtin_mul_overflow(stride, std::max<int64_t>(size, 1), &stride);
    LEVIN_CHECK(fits, "files.safetensors", "{}: tensor '{}' has the impossible shape [{}]", file,
                printable(name), fmt::join(shape, ", "));
  }
  LEVIN_CHECK(bits % 8 == 0, "files.safetensors",
              "{}: tensor '{}': {} [{}] ends within a byte; the file is damaged", file,
              printable(name), dtype_name, fmt::join(shape, ", "));
  return bits / 8;
}

/// The header's text, its length checked against the file.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  LEVIN_CHECK(
      bytes.size() >= kLengthBytes, "files.safetensors",
      "{}: the file is truncated: it ends at byte {}, wanted at least {}; copy or write it again",
      file, bytes.size(), kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  LEVIN_CHECK(
      length <= kMaxHeaderBytes, "files.safetensors",
      "{}: got a header of {} bytes at byte 0, wanted at most {}; this is not a safetensors file",
      file, length, kMaxHeaderBytes);
  LEVIN_CHECK(length <= bytes.size() - kLengthBytes, "files.safetensors",
              "{}: the file is truncated: it ends at byte {}, inside its header of {} bytes; copy "
              "or write it again",
              file, bytes.size(), length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  LEVIN_CHECK(text.starts_with('{'), "files.safetensors",
              "{}: byte {} is not '{{'; this is not a safetensors file", file, kLengthBytes);
  // nlohmann's parser would take a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  LEVIN_CHECK(zero == std::string_view::npos, "files.safetensors",
              "{}: the header has a zero byte at byte {}; the file is damaged", file,
              zero + kLengthBytes);
  return text;
}

}  // namespace detail

SafetensorsLayout::SafetensorsLayout(const std::vector<TensorDescription>& tensors,
                                     const TensorMetadata& metadata, const std::string& file) {
  for (TensorDescription& tensor : sorted(tensors, file)) {
    const int64_t bytes = detail::tensor_bytes(file, tensor.name, tensor.dtype, tensor.shape);
    places_.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape),
                       size_, size_ + bytes});
    size_ += bytes;
  }
  check_names(tensors, file);
  header_ = header_of(places_, metadata, file);
  for (Place& place : places_) {
    place.begin += std::ssize(header_);
    place.end += std::ssize(header_);
  }
  size_ += std::ssize(header_);
}

SafetensorsLayout SafetensorsLayout::of_header(std::string_view header, const std::string& file) {
  const std::string_view json =
      detail::header_text(std::as_bytes(std::span(header.data(), header.size())), file);
  std::vector<detail::HeaderEntry> entries = detail::parse_header(json, file).entries;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  SafetensorsLayout layout;
  layout.header_ = header.substr(0, kLengthBytes + json.size());
  layout.size_ = std::ssize(layout.header_);
  const auto data = static_cast<uint64_t>(layout.size_);
  for (detail::HeaderEntry& entry : entries) {
    const int64_t bytes = detail::tensor_bytes(file, entry.name, entry.dtype, entry.shape);
    const int64_t end = layout.size_ + bytes;
    const bool fits = bytes <= std::numeric_limits<int64_t>::max() - layout.size_ &&
                      entry.begin == static_cast<uint64_t>(layout.size_) - data &&
                      entry.end == static_cast<uint64_t>(end) - data;
    LEVIN_CHECK(fits, "files.safetensors",
                "{}: tensor '{}' has data_offsets [{}, {}], wanted {} bytes that start at {}; the "
                "file is damaged",
                file, printable(entry.name), entry.begin, entry.end, bytes,
                static_cast<uint64_t>(layout.size_) - data);
    layout.places_.push_back(
        {std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), layout.size_, end});
    layout.size_ = end;
  }
  return layout;
}

}  // namespace levin::files
