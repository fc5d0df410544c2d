#pragma once
// Decoders of image files: bytes to pixels, row by row, with all channels of a pixel side by side.
// Not for users.
//
//   const at::Tensor pixels = decode_png(bytes, "cat.png", limit);   // uint8 [height, width, 3]

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace levin::data {

/// Pixels that a decoder may make of these bytes.
struct PixelLimit {
  int64_t max_pixels;
  /// Throws Error "data.images.size" above the limit, and "data.images.decode" for an image without
  /// pixels.
  void check(int64_t height, int64_t width, const std::string& name) const;
};

bool is_png(std::span<const std::byte> bytes);
bool is_jpeg(std::span<const std::byte> bytes);

/// Returns uint8 [height, width, channels] with 1 channel for gray images and 3 for all others.
/// Throws Error "data.images.decode", "data.images.size" and "data.images.library".
at::Tensor decode_png(std::span<const std::byte> bytes, const std::string& name, PixelLimit limit);
at::Tensor decode_jpeg(std::span<const std::byte> bytes, const std::string& name, PixelLimit limit);

}  // namespace levin::data
