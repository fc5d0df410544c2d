#pragma once
// PNG files from pixels: images that loggers write.
//
//   const std::string bytes = png_of(pixels, {.height = 2, .width = 3, .channels = 1});

#include <cstdint>
#include <span>
#include <string>

#include "levin/base/export.h"

namespace levin::files {

struct PngShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;  ///< 1: gray, 3: RGB, 4: RGBA
};

/// Pixels are rows of width * channels bytes. Throws Error "files.write" where the size is none that
/// PNG has (1 to 2^31 - 1), or zlib fails.
LEVIN_API std::string png_of(std::span<const uint8_t> pixels, const PngShape& shape);

}  // namespace levin::files
