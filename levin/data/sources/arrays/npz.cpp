#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/data/sources/arrays/npy_impl.h"
#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {
namespace {

struct ZipEntry {
  std::string name;
  uint64_t method = 0;  ///< 0: stored, 8: deflated
  uint64_t checksum = 0;
  uint64_t packed_size = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  ///< of its local header
};

/// The directory of a zip file and the data of its entries, sizes of 64 bits included.
class ZipFile {
 public:
  ZipFile(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::vector<ZipEntry> entries() const {
    const uint64_t end = end_record();
    uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
    if (count == 0xffff || at == 0xffffffff) {
      check(end >= 20 && number(end - 20, 4) == 0x07064b50);
      const uint64_t wide = number(end - 12, 8);
      check(number(wide, 4) == 0x06064b50);
      count = number(wide + 32, 8);
      at = number(wide + 48, 8);
    }
    std::vector<ZipEntry> entries;
    for (uint64_t i = 0; i < count; ++i) {
      check(number(at, 4) == 0x02014b50);
      ZipEntry entry = {.name = text(at + 46, number(at + 28, 2)),
                        .method = number(at + 10, 2),
                        .checksum = number(at + 16, 4),
                        .packed_size = number(at + 20, 4),
                        .size = number(at + 24, 4),
                        .offset = number(at + 42, 4)};
      LEVIN_CHECK((number(at + 8, 2) & 1) == 0, "data.npz",
                  "{} is encrypted; save the arrays by numpy.savez", name_);
      const uint64_t extra = at + 46 + number(at + 28, 2);
      read_wide(entry, extra, number(at + 30, 2));
      at = extra + number(at + 30, 2) + number(at + 32, 2);
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  /// The entry's bytes as they are in the file.
  std::span<const std::byte> packed(const ZipEntry& entry) const {
    check(number(entry.offset, 4) == 0x04034b50);
    const uint64_t begin =
        entry.offset + 30 + number(entry.offset + 26, 2) + number(entry.offset + 28, 2);
    check(begin <= bytes_.size() && entry.packed_size <= bytes_.size() - begin);
    return bytes_.subspan(begin, entry.packed_size);
  }

  void check(bool holds) const {
    LEVIN_CHECK(holds, "data.npz",
                "{} is no .npz file, or it is truncated or corrupt; save it again by numpy.savez",
                name_);
  }

 private:
  uint64_t number(uint64_t at, uint64_t size) const {
    check(at <= bytes_.size() && size <= bytes_.size() - at);
    uint64_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      value |= static_cast<uint64_t>(bytes_[at + i]) << (8 * i);
    }
    return value;
  }
  std::string text(uint64_t at, uint64_t size) const {
    check(at <= bytes_.size() && size <= bytes_.size() - at);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }

  /// The end record stands at the end, before a comment of up to 65,535 bytes.
  uint64_t end_record() const {
    check(bytes_.size() >= 22);
    const uint64_t last = bytes_.size() - 22;
    for (uint64_t back = 0; back <= std::min<uint64_t>(last, 0xffff); ++back) {
      if (number(last - back, 4) == 0x06054b50) return last - back;
    }
    check(false);
    return 0;
  }

  /// Sizes and the offset of 64 bits stand in an extra field, those of them that are all ones.
  void read_wide(ZipEntry& entry, uint64_t at, uint64_t size) const {
    const uint64_t end = at + size;
    while (at + 4 <= end) {
      const uint64_t kind = number(at, 2), length = number(at + 2, 2);
      uint64_t field = at + 4;
      if (kind == 1) {
        for (uint64_t* value : {&entry.size, &entry.packed_size, &entry.offset}) {
          if (*value != 0xffffffff) continue;
          check(field + 8 <= at + 4 + length);
          *value = number(field, 8);
          field += 8;
        }
      }
      at += 4 + length;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
};

/// Deflate makes at most 1032 bytes of one.
constexpr uint64_t kMostOfAByte = 1040;

std::shared_ptr<std::vector<std::byte>> inflated(const ZipFile& zip, const ZipEntry& entry) {
  const auto packed = zip.packed(entry);
  constexpr uint64_t kMost = std::numeric_limits<uInt>::max();
  zip.check(entry.size / kMostOfAByte <= packed.size());
  auto bytes = std::make_shared<std::vector<std::byte>>(entry.size);
  z_stream stream{};
  zip.check(inflateInit2(&stream, -MAX_WBITS) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> held(&stream, inflateEnd);
  uint64_t read = 0, written = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const uint64_t input = std::min<uint64_t>(packed.size() - read, kMost);
    const uint64_t room = std::min<uint64_t>(bytes->size() - written, kMost);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data())) + read;
    stream.avail_in = static_cast<uInt>(input);
    Bytef none = 0;
    stream.next_out = room == 0 ? &none : reinterpret_cast<Bytef*>(bytes->data()) + written;
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    read += input - stream.avail_in;
    written += room - stream.avail_out;
  }
  zip.check(result == Z_STREAM_END && written == entry.size);
  return bytes;
}

}  // namespace

Batch read_npz(const std::filesystem::path& path) {
  const auto map = std::make_shared<files::MemoryMap>(path);
  const std::string name = path.string();
  const ZipFile zip(map->bytes(), name);
  Batch arrays;
  for (const ZipEntry& entry : zip.entries()) {
    const std::string place = name + ": " + printable(entry.name);
    LEVIN_CHECK(entry.name.ends_with(".npy") && (entry.method == 0 || entry.method == 8),
                "data.npz", "{} is no array of numpy.savez or numpy.savez_compressed", place);
    std::span<const std::byte> bytes = zip.packed(entry);
    std::shared_ptr<const void> owner = map;
    if (entry.method == 8) {
      const auto unpacked = inflated(zip, entry);
      bytes = *unpacked;
      owner = unpacked;
      zip.check(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) ==
                entry.checksum);
    }
    const std::string field = entry.name.substr(0, entry.name.size() - 4);
    LEVIN_CHECK(!arrays.contains(field), "data.npz", "{} has two arrays named '{}'", name,
                printable(field));
    arrays.set(field, parse_npy(bytes, owner, place));
  }
  return arrays;
}

}  // namespace levin::data
