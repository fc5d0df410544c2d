#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/data/sources/arrays/npy_impl.h"
#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {
namespace {

struct NpyHeader {
  std::string dtype;
  bool is_fortran = false;
  std::vector<int64_t> shape;
};

/// The header's dict, as numpy writes it: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    int seen = 0;
    want('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      want(':');
      if (key == "descr") {
        header.dtype = quoted();
        seen |= 1;
      } else if (key == "fortran_order") {
        header.is_fortran = flag();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = numbers();
        seen |= 4;
      } else {
        fail();
      }
      if (!take(',') && peek() != '}') fail();
    }
    if (seen != 7 || peek() != '\0') fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    LEVIN_FAIL("data.npy",
               "{} has a header that is not understood at offset {}; save a plain array of numbers "
               "by numpy.save",
               name_, at_);
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void want(char wanted) {
    if (!take(wanted)) fail();
  }
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail();
    const std::string_view inner = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inner;
  }
  bool flag() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail();
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> all;
    want('(');
    while (!take(')')) {
      peek();
      int64_t number = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (error != std::errc() || number < 0 || all.size() == 64) fail();
      at_ = static_cast<size_t>(end - text_.data());
      all.push_back(number);
      if (!take(',') && peek() != ')') fail();
    }
    return all;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

at::ScalarType dtype_of_npy(const std::string& text, const std::string& name) {
  constexpr std::array<std::pair<std::string_view, at::ScalarType>, 14> kTypes = {
      {{"b1", at::kBool},
       {"i1", at::kChar},
       {"u1", at::kByte},
       {"i2", at::kShort},
       {"u2", at::kUInt16},
       {"i4", at::kInt},
       {"u4", at::kUInt32},
       {"i8", at::kLong},
       {"u8", at::kUInt64},
       {"f2", at::kHalf},
       {"f4", at::kFloat},
       {"f8", at::kDouble},
       {"c8", at::kComplexFloat},
       {"c16", at::kComplexDouble}}};
  const std::string_view kind = std::string_view(text).substr(std::min<size_t>(1, text.size()));
  const auto found =
      std::ranges::find(kTypes, kind, &std::pair<std::string_view, at::ScalarType>::first);
  const bool has_order = text.starts_with('<') || text.starts_with('|') || text.starts_with('=');
  LEVIN_CHECK(
      found != kTypes.end() && has_order, "data.npy",
      "{} has the dtype '{}', wanted booleans or numbers in little-endian order; convert it "
      "by astype in NumPy",
      name, printable(text));
  return found->second;
}

/// Number of bytes of the elements; nothing where they are more than a file can have.
std::optional<size_t> npy_bytes(const NpyHeader& header, size_t item) {
  size_t bytes = item;
  for (const int64_t length : header.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(length), &bytes)) return std::nullopt;
  }
  if (bytes > size_t{1} << 62) return std::nullopt;
  return bytes;
}

}  // namespace

at::Tensor parse_npy(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                     const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  LEVIN_CHECK(text.starts_with("\x93NUMPY") && text.size() >= 10, "data.npy",
              "{} ({} bytes) is no .npy file; save it by numpy.save", name, text.size());
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(text[at])); };
  const size_t version = byte(6), begin = version == 1 ? 10 : 12;
  LEVIN_CHECK(version >= 1 && version <= 3 && text.size() >= begin, "data.npy",
              "{} has version {} of the .npy format, wanted 1 to 3", name, version);
  size_t size = byte(8) | byte(9) << 8;
  if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
  LEVIN_CHECK(size <= text.size() - begin, "data.npy",
              "{} is truncated: its header has {} bytes of {}; write it again", name,
              text.size() - begin, size);
  const NpyHeader header = NpyHeaderReader(text.substr(begin, size), name).read();
  const at::ScalarType dtype = dtype_of_npy(header.dtype, name);
  const std::optional<size_t> wanted = npy_bytes(header, c10::elementSize(dtype));
  const std::span<const std::byte> data = bytes.subspan(begin + size);
  LEVIN_CHECK(wanted && *wanted <= data.size(), "data.npy",
              "{} is truncated: it has {} bytes of elements for the shape {}; write it again", name,
              data.size(), c10::str(at::IntArrayRef(header.shape)));
  // Fortran order: the array with its dims reversed in C order.
  std::vector<int64_t> sizes = header.shape;
  if (header.is_fortran) std::ranges::reverse(sizes);
  at::Tensor array;
  if (reinterpret_cast<uintptr_t>(data.data()) % c10::elementSize(dtype) == 0 && *wanted > 0) {
    array = at::from_blob(
        const_cast<std::byte*>(data.data()), sizes, [owner](void*) {}, at::TensorOptions(dtype));
  } else {
    array = at::empty(sizes, dtype);
    if (*wanted > 0) std::memcpy(array.mutable_data_ptr(), data.data(), *wanted);
  }
  if (!header.is_fortran) return array;
  std::vector<int64_t> dims(sizes.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(dims.size() - 1 - i);
  return array.permute(dims);
}

at::Tensor read_npy(const std::filesystem::path& path) {
  const auto map = std::make_shared<files::MemoryMap>(path);
  return parse_npy(map->bytes(), map, path.string());
}

}  // namespace levin::data
