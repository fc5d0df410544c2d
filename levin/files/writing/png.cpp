#include "levin/files/writing/png.h"

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "levin/base/check.h"

namespace levin::files {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr uint8_t kBitDepth = 8;
constexpr int kNumFilters = 5;

std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

void add_chunk(std::string& file, std::string_view kind, std::string_view data) {
  const std::string body = std::string(kind).append(data);
  const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()),  // NOLINT
                            static_cast<uInt>(body.size()));
  file.append(big_endian(static_cast<uint32_t>(data.size()))).append(body);
  file += big_endian(static_cast<uint32_t>(sum));
}

uint8_t paeth(int left, int up, int corner) {
  const int guess = left + up - corner;
  const int by_left = std::abs(guess - left), by_up = std::abs(guess - up);
  const int by_corner = std::abs(guess - corner);
  if (by_left <= by_up && by_left <= by_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(by_up <= by_corner ? up : corner);
}

uint8_t predicted(int filter, uint8_t left, uint8_t up, uint8_t corner) {
  switch (filter) {
    case 1:
      return left;
    case 2:
      return up;
    case 3:
      return static_cast<uint8_t>((left + up) / 2);
    case 4:
      return paeth(left, up, corner);
    default:
      return 0;
  }
}

/// The row after the filter whose result is nearest to zero, which compresses best (PNG, 12.8).
void add_row(std::string& rows, std::span<const uint8_t> row, std::span<const uint8_t> above,
             size_t channels) {
  std::string best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int filter = 0; filter < kNumFilters; ++filter) {
    std::string filtered(1, static_cast<char>(filter));
    int64_t sum = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool first = i < channels;
      const uint8_t up = above.empty() ? uint8_t{0} : above[i];
      const uint8_t left = first ? uint8_t{0} : row[i - channels];
      const uint8_t corner = first || above.empty() ? uint8_t{0} : above[i - channels];
      const auto off = static_cast<uint8_t>(row[i] - predicted(filter, left, up, corner));
      filtered += static_cast<char>(off);
      sum += std::abs(static_cast<int8_t>(off));
    }
    if (sum >= least) continue;
    least = sum;
    best = std::move(filtered);
  }
  rows += best;
}

std::string deflated(const std::string& rows) {
  uLongf size = ::compressBound(static_cast<uLong>(rows.size()));
  std::string bytes(size, '\0');
  const int code = ::compress2(reinterpret_cast<Bytef*>(bytes.data()), &size,  // NOLINT
                               reinterpret_cast<const Bytef*>(rows.data()),    // NOLINT
                               static_cast<uLong>(rows.size()), Z_DEFAULT_COMPRESSION);
  LEVIN_CHECK(code == Z_OK, "files.write", "zlib could not compress an image of {} bytes",
              rows.size());
  bytes.resize(size);
  return bytes;
}

char color_type(int64_t channels) { return channels == 1 ? 0 : channels == 3 ? 2 : 6; }

}  // namespace

std::string png_of(std::span<const uint8_t> pixels, const PngShape& shape) {
  const auto& [height, width, channels] = shape;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool is_image = height > 0 && width > 0 && height <= kMost && width <= kMost &&
                        (channels == 1 || channels == 3 || channels == 4);
  LEVIN_CHECK(
      is_image, "files.write",
      "got an image of {} x {} pixels with {} channels, wanted at least 1 x 1 with 1, 3 or 4",
      height, width, channels);
  const auto row_bytes = static_cast<size_t>(width * channels);
  LEVIN_CHECK(pixels.size() / row_bytes == static_cast<size_t>(height), "files.write",
              "got {} bytes for an image of {} x {} pixels with {} channels", pixels.size(), height,
              width, channels);
  std::string header =
      big_endian(static_cast<uint32_t>(width)) + big_endian(static_cast<uint32_t>(height));
  header += {static_cast<char>(kBitDepth), color_type(channels), 0, 0, 0};
  std::string rows;
  rows.reserve(pixels.size() + static_cast<size_t>(height));
  std::span<const uint8_t> above;
  for (int64_t y = 0; y < height; ++y) {
    const auto row = pixels.subspan(static_cast<size_t>(y) * row_bytes, row_bytes);
    add_row(rows, row, above, static_cast<size_t>(channels));
    above = row;
  }
  std::string file(kSignature);
  add_chunk(file, "IHDR", header);
  add_chunk(file, "IDAT", deflated(rows));
  add_chunk(file, "IEND", "");
  return file;
}

}  // namespace levin::files
