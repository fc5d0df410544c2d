#include "levin/files/idx.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#define ZLIB_CONST
#include <zlib.h>

#include "levin/base/check.h"
#include "levin/files/memory_map.h"

namespace levin::files {
namespace {

constexpr int kMaxRank = 8;
// First piece of memory for the data; more only once it is full.
constexpr size_t kFirstPiece = size_t{1} << 16;
constexpr size_t kPackedRatio = 4;

/// The unpacked bytes of a file, front to back.
class Source {
 public:
  virtual ~Source() = default;
  /// Fills `to` as far as there are bytes.
  virtual size_t read(std::span<std::byte> to) = 0;
};

class PlainSource : public Source {
 public:
  explicit PlainSource(std::span<const std::byte> bytes) : rest_(bytes) {}

  size_t read(std::span<std::byte> to) override {
    const size_t count = std::min(to.size(), rest_.size());
    std::copy_n(rest_.begin(), count, to.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

 private:
  std::span<const std::byte> rest_;
};

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

/// RFC 1952: one member or several in a row; zlib checks each one's CRC and length.
class GzipSource : public Source {
 public:
  GzipSource(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), rest_(bytes), file_(file) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    check(inflateInit2(&stream_, kGzipOnly));
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<std::byte> to) override {
    size_t filled = 0;
    while (filled < to.size() && !ended_) filled += inflate_some(to.subspan(filled));
    return filled;
  }

 private:
  size_t inflate_some(std::span<std::byte> to) {
    constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits
    const size_t input = std::min(rest_.size(), kMost);
    const size_t output = std::min(to.size(), kMost);
    stream_.next_in = reinterpret_cast<const Bytef*>(rest_.data());
    stream_.avail_in = static_cast<uInt>(input);
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(output);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    rest_ = rest_.subspan(input - stream_.avail_in);
    if (code == Z_STREAM_END) {
      end_member();
    } else {
      check(code);
    }
    return output - stream_.avail_out;
  }

  void end_member() {
    ended_ = rest_.empty();
    if (ended_) return;
    LEVIN_CHECK(is_gzip(rest_), "files.idx",
                "{} at byte {} of the packed file: bytes after the end of the gzip data; the file "
                "is damaged",
                file_, packed_offset());
    check(inflateReset(&stream_));
  }

  void check(int code) const {
    LEVIN_CHECK(code != Z_BUF_ERROR, "files.idx",
                "{} at byte {} of the packed file: the gzip data ends too early; the file is "
                "truncated, download it again",
                file_, packed_offset());
    LEVIN_CHECK(code == Z_OK, "files.idx",
                "{} at byte {} of the packed file: {}; the file is damaged, download it again",
                file_, packed_offset(), stream_.msg != nullptr ? stream_.msg : zError(code));
  }

  size_t packed_offset() const { return bytes_.size() - rest_.size(); }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> rest_;
  const std::string& file_;
  z_stream stream_{};
  bool ended_ = false;
};

size_t element_bytes(IdxType type) {
  switch (type) {
    case IdxType::kU8:
    case IdxType::kI8:
      return 1;
    case IdxType::kI16:
      return 2;
    case IdxType::kI32:
    case IdxType::kF32:
      return 4;
    case IdxType::kF64:
      return 8;
  }
  return 0;
}

template <class Word>
void reverse_each(std::span<std::byte> data) {
  for (size_t i = 0; i < data.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data.data() + i, sizeof(Word));
    if constexpr (sizeof(Word) == 2) word = __builtin_bswap16(word);
    if constexpr (sizeof(Word) == 4) word = __builtin_bswap32(word);
    if constexpr (sizeof(Word) == 8) word = __builtin_bswap64(word);
    std::memcpy(data.data() + i, &word, sizeof(Word));
  }
}

/// IDX is big-endian.
void to_host_order(std::span<std::byte> data, size_t bytes_each) {
  if constexpr (std::endian::native == std::endian::big) return;
  if (bytes_each == 2) reverse_each<uint16_t>(data);
  if (bytes_each == 4) reverse_each<uint32_t>(data);
  if (bytes_each == 8) reverse_each<uint64_t>(data);
}

class IdxReader {
 public:
  IdxReader(Source& source, size_t file_bytes, const std::string& file)
      : source_(source), file_bytes_(file_bytes), file_(file) {}

  IdxArray read() {
    IdxArray array;
    const size_t num_bytes = read_header(array);
    read_data(array, num_bytes);
    std::byte extra{};
    if (source_.read({&extra, 1}) != 0) {
      fail(fmt::format("the data is larger than the {} bytes of the shape [{}]", num_bytes,
                       fmt::join(array.shape, ", ")));
    }
    to_host_order(array.data, element_bytes(array.type));
    return array;
  }

 private:
  /// Fills type and shape and returns the size of the data in bytes.
  size_t read_header(IdxArray& array) {
    std::array<std::byte, 4> magic{};
    const size_t there = source_.read(magic);
    if (there < magic.size() || magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
      fail("wanted two zero bytes, an element type and a number of dims; this is not an IDX file");
    }
    array.type = static_cast<IdxType>(magic[2]);
    offset_ = 2;
    if (element_bytes(array.type) == 0) {
      fail(fmt::format("element type {:#04x}, wanted one of 0x08, 0x09, 0x0b to 0x0e",
                       static_cast<int>(magic[2])));
    }
    const int rank = static_cast<int>(magic[3]);
    offset_ = 3;
    if (rank < 1 || rank > kMaxRank) fail(fmt::format("{} dims, wanted 1 to {}", rank, kMaxRank));
    offset_ = 4;
    auto num_bytes = static_cast<int64_t>(element_bytes(array.type));
    int64_t stride = num_bytes;  // in bytes; of an empty array too they fit into 64 bits
    for (int dim = 0; dim < rank; ++dim) {
      const int64_t size = read_size();
      if (size < 0) fail(fmt::format("size {} of dim {}", size, dim));
      if (__builtin_mul_overflow(num_bytes, size, &num_bytes) ||
          __builtin_mul_overflow(stride, std::max<int64_t>(size, 1), &stride)) {
        fail(fmt::format("the sizes multiply to more than 64 bits at dim {}", dim));
      }
      array.shape.push_back(size);
      offset_ += sizeof(int32_t);
    }
    return static_cast<size_t>(num_bytes);
  }

  int64_t read_size() {
    std::array<std::byte, sizeof(int32_t)> bytes{};
    const size_t there = source_.read(bytes);
    if (there < bytes.size())
      fail("the file ends inside its header; it is truncated, download it again");
    uint32_t word = 0;
    for (const std::byte byte : bytes) word = word << 8 | static_cast<uint32_t>(byte);
    return static_cast<int32_t>(word);
  }

  void read_data(IdxArray& array, size_t num_bytes) {
    size_t room = std::min(num_bytes, std::max(kFirstPiece, kPackedRatio * file_bytes_));
    while (array.data.size() < num_bytes) {
      const size_t filled = array.data.size();
      array.data.reserve(room);
      array.data.resize(room);
      const size_t count = source_.read(std::span(array.data).subspan(filled));
      if (filled + count < room) {
        offset_ += filled + count;
        fail(
            fmt::format("the file ends here, {} bytes short of the shape [{}]; it is truncated, "
                        "download it again",
                        num_bytes - filled - count, fmt::join(array.shape, ", ")));
      }
      room = num_bytes - room < room ? num_bytes : 2 * room;
    }
    offset_ += num_bytes;
  }

  [[noreturn]] void fail(const std::string& what) const {
    LEVIN_FAIL("files.idx", "{} at byte {}: {}", file_, offset_, what);
  }

  Source& source_;
  size_t file_bytes_;
  const std::string& file_;
  size_t offset_ = 0;  // in the unpacked data
};

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  const MemoryMap map(path);
  const std::string file = path.string();
  std::unique_ptr<Source> source;
  if (is_gzip(map.bytes())) {
    source = std::make_unique<GzipSource>(map.bytes(), file);
  } else {
    source = std::make_unique<PlainSource>(map.bytes());
  }
  return IdxReader(*source, map.bytes().size(), file).read();
}

}  // namespace levin::files
