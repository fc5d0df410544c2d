#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "levin/base/check.h"
#include "levin/data/sources/images/decode_impl.h"
#include "levin/data/sources/sources.h"
#include "levin/files/read_file.h"

namespace levin::data {
namespace {

bool starts_with_bytes(std::span<const std::byte> bytes, std::string_view wanted) {
  return bytes.size() >= wanted.size() &&
         std::memcmp(bytes.data(), wanted.data(), wanted.size()) == 0;
}

void check_edges(const char* name, const std::vector<int64_t>& edges) {
  const bool valid = edges.size() <= 2 && std::ranges::all_of(edges, [](int64_t edge) {
                       return edge > 0 && edge <= int64_t{1} << 24;
                     });
  LEVIN_CHECK(valid, "data.images.options",
              "got {} = {}, wanted {{}}, {{size}} or {{height, width}} of at least 1 each", name,
              c10::str(at::IntArrayRef(edges)));
}

/// RGB to L of PIL: ITU-R 601-2 luma in fixed point.
at::Tensor gray_of(const at::Tensor& rgb) {
  at::Tensor gray = at::empty({rgb.size(0), rgb.size(1), 1}, at::kByte);
  const uint8_t* from = rgb.const_data_ptr<uint8_t>();
  uint8_t* to = gray.mutable_data_ptr<uint8_t>();
  for (int64_t pixel = 0; pixel < gray.numel(); ++pixel, from += 3) {
    to[pixel] = static_cast<uint8_t>(
        (from[0] * 19595U + from[1] * 38470U + from[2] * 7471U + 0x8000U) >> 16);
  }
  return gray;
}

/// Resize of torchvision: one edge is the shorter one, and the other keeps the ratio.
std::array<int64_t, 2> resized(const std::vector<int64_t>& resize, int64_t height, int64_t width,
                               int64_t max_pixels, const std::string& name) {
  std::array<int64_t, 2> size = {resize[0], resize.back()};
  if (resize.size() == 1) {
    const auto longer = [&](int64_t longest, int64_t shortest) {
      return static_cast<int64_t>(static_cast<double>(resize[0]) * static_cast<double>(longest) /
                                  static_cast<double>(shortest));
    };
    if (height <= width) {
      size[1] = longer(width, height);
    } else {
      size[0] = longer(height, width);
    }
  }
  LEVIN_CHECK(size[0] <= max_pixels / size[1], "data.images.size",
              "{} would be resized to {} x {} pixels, but max_pixels is {}; resize to {{height, "
              "width}} or raise max_pixels",
              name, size[0], size[1], max_pixels);
  return size;
}

/// Half of the difference, rounded to even as round() of Python does.
int64_t half(int64_t difference) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(difference) / 2));
}

/// image [channels, height, width]
at::Tensor cropped(at::Tensor image, const std::vector<int64_t>& edges) {
  const int64_t height = edges[0], width = edges.back();
  const int64_t more_rows = std::max<int64_t>(height - image.size(1), 0);
  const int64_t more_columns = std::max<int64_t>(width - image.size(2), 0);
  if (more_rows + more_columns > 0) {
    image = at::constant_pad_nd(
        image, {more_columns / 2, (more_columns + 1) / 2, more_rows / 2, (more_rows + 1) / 2});
  }
  return image.narrow(1, half(image.size(1) - height), height)
      .narrow(2, half(image.size(2) - width), width);
}

}  // namespace

void PixelLimit::check(int64_t height, int64_t width, const std::string& name) const {
  LEVIN_CHECK(height > 0 && width > 0, "data.images.decode",
              "{} is an image of {} x {} pixels, wanted at least 1 x 1; replace or remove the file",
              name, height, width);
  LEVIN_CHECK(height <= max_pixels / width, "data.images.size",
              "{} is an image of {} x {} pixels, but max_pixels is {}; raise max_pixels or remove "
              "the file",
              name, height, width, max_pixels);
}

bool is_png(std::span<const std::byte> bytes) {
  return starts_with_bytes(bytes, "\x89PNG\r\n\x1a\n");
}
bool is_jpeg(std::span<const std::byte> bytes) { return starts_with_bytes(bytes, "\xff\xd8\xff"); }

at::Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                        const ImageOptions& options) {
  check_edges("resize", options.resize);
  check_edges("center_crop", options.center_crop);
  LEVIN_CHECK(options.max_pixels > 0, "data.images.options",
              "got max_pixels = {}, wanted at least 1", options.max_pixels);
  const bool png = is_png(bytes);
  LEVIN_CHECK(png || is_jpeg(bytes), "data.images.format",
              "{} ({} bytes) is neither a PNG nor a JPEG image; convert or remove the file", name,
              bytes.size());
  const PixelLimit limit{options.max_pixels};
  at::Tensor pixels = png ? decode_png(bytes, name, limit) : decode_jpeg(bytes, name, limit);
  if (options.gray && pixels.size(2) == 3) pixels = gray_of(pixels);
  if (!options.gray && pixels.size(2) == 1) pixels = pixels.expand({-1, -1, 3});
  at::Tensor image = pixels.permute({2, 0, 1});
  if (!options.resize.empty()) {
    const auto size =
        resized(options.resize, image.size(1), image.size(2), options.max_pixels, name);
    if (size[0] != image.size(1) || size[1] != image.size(2)) {
      image = at::_upsample_bilinear2d_aa(image.unsqueeze(0), size, /*align_corners=*/false)[0];
    }
  }
  if (!options.center_crop.empty()) image = cropped(image, options.center_crop);
  return image.contiguous();
}

at::Tensor read_image(const std::filesystem::path& path, const ImageOptions& options) {
  const std::string bytes = files::read_file(path);
  return decode_image(std::as_bytes(std::span(bytes)), path.string(), options);
}

}  // namespace levin::data
