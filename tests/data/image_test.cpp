// PNG and JPEG files of foreign hands. tests/oracle/images_test.cpp compares pixels with Pillow.
#include <boost/crc.hpp>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_images.h"

// The sources of a build without the libraries, under other names.
#include "levin/data/sources/images/decode_impl.h"
#define decode_png decode_png_without_libpng
#define decode_jpeg decode_jpeg_without_libjpeg
#include "levin/data/sources/images/no_jpeg.cpp"
#include "levin/data/sources/images/no_png.cpp"
#undef decode_png
#undef decode_jpeg

namespace image_files {
namespace {

using levin::data::decode_image;
using levin::data::ImageOptions;
using levin::test::error_id;
using levin::test::error_of;
using testing::HasSubstr;
using testing::StartsWith;

at::Tensor decode(std::string_view bytes, const ImageOptions& options = {}) {
  return decode_image(std::as_bytes(std::span(bytes)), "cat", options);
}

std::string error_in(std::string_view bytes, const ImageOptions& options = {}) {
  return error_of([&] { decode(bytes, options); });
}

/// The PNG file with other bytes at this place of a chunk, and the chunk's checksum as it must be.
std::string changed(std::string_view png, std::string_view chunk, size_t place,
                    std::string_view bytes) {
  std::string file(png);
  const size_t kind = file.find(chunk);
  file.replace(kind + 4 + place, bytes.size(), bytes);
  uint32_t size = 0;
  for (size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<uint8_t>(file[kind - 4 + i]);
  boost::crc_32_type crc;
  crc.process_bytes(file.data() + kind, 4 + size);
  for (size_t i = 0; i < 4; ++i) {
    file[kind + 4 + size + i] = static_cast<char>(crc.checksum() >> (24 - 8 * i));
  }
  return file;
}

TEST(Png, GivesChannelsRowsAndColumns) {
  // Pixel (row, column) is 14 times 9 row + 3 column + channel.
  const at::Tensor wanted = (torch::arange(18).view({2, 3, 3}).permute({2, 0, 1}) * 14);
  const at::Tensor image = decode(levin::test::kRgbPng);
  EXPECT_EQ(image.scalar_type(), at::kByte);
  EXPECT_TRUE(image.is_contiguous());
  EXPECT_TRUE(torch::equal(image.to(at::kLong), wanted));
}

TEST(Png, GrayFollowsPillow) {
  // Image.convert("L") of the same pixels
  const at::Tensor gray = decode(levin::test::kRgbPng, {.gray = true});
  EXPECT_EQ(gray.sizes(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(torch::equal(gray.flatten(), torch::tensor({11, 53, 95, 137, 179, 221}, at::kByte)));
  const at::Tensor same = decode(levin::test::kInterlacedPng, {.gray = true});
  EXPECT_TRUE(torch::equal(same.flatten().to(at::kLong), torch::arange(25) * 10));
}

TEST(Png, KeepsTheHighByteOf16Bits) {
  const at::Tensor image = decode(levin::test::kGray16Png);
  ASSERT_EQ(image.sizes(), (std::vector<int64_t>{3, 2, 2}));
  for (int64_t channel = 0; channel < 3; ++channel) {
    EXPECT_TRUE(
        torch::equal(image[channel].flatten(), torch::tensor({0x12, 0xff, 0x00, 0x80}, at::kByte)));
  }
}

TEST(Png, ReadsPalettesAndDropsTransparency) {
  const at::Tensor wanted =
      torch::tensor({{10, 40, 70, 200}, {20, 50, 80, 210}, {30, 60, 90, 220}}, at::kByte);
  EXPECT_TRUE(torch::equal(decode(levin::test::kPalettePng), wanted.unsqueeze(1)));
}

TEST(Png, ReadsInterlacedFiles) {
  const at::Tensor wanted = (torch::arange(25).view({1, 5, 5}) * 10).to(at::kByte);
  EXPECT_TRUE(torch::equal(decode(levin::test::kInterlacedPng), wanted.expand({3, 5, 5})));
}

TEST(Png, TruncatedFilesAreErrors) {
  for (const std::string_view file :
       {levin::test::kRgbPng, levin::test::kPalettePng, levin::test::kInterlacedPng}) {
    for (size_t size = 0; size < file.size(); ++size) {
      const std::string error = error_in(file.substr(0, size));
      EXPECT_THAT(error,
                  StartsWith(size < 8 ? "data.images.format: cat" : "data.images.decode: cat"))
          << size;
    }
  }
  EXPECT_EQ(error_in(levin::test::kRgbPng.substr(0, 50)),
            "data.images.decode: cat is not a valid PNG image: the file is truncated; replace or "
            "remove the file");
  EXPECT_EQ(error_in(""),
            "data.images.format: cat (0 bytes) is neither a PNG nor a JPEG image; convert or "
            "remove the file");
}

TEST(Png, CorruptChecksumsAreErrors) {
  for (const std::string_view chunk : {"IHDR", "IDAT"}) {
    std::string file(levin::test::kRgbPng);
    const size_t kind = file.find(chunk);
    file[kind + 4 + static_cast<uint8_t>(file[kind - 1])] ^= 1;  // behind the chunk's data
    EXPECT_THAT(error_in(file),
                AllOf(StartsWith("data.images.decode: cat"), HasSubstr("CRC error")))
        << chunk;
  }
}

TEST(Png, ForeignHeadersAreErrors) {
  const auto header = [](size_t place, std::string_view bytes) {
    return error_in(changed(levin::test::kRgbPng, "IHDR", place, bytes));
  };
  EXPECT_THAT(header(8, "\x03"), HasSubstr("Invalid IHDR data"));   // 3 bits
  EXPECT_THAT(header(9, "\x05"), HasSubstr("Invalid IHDR data"));   // no such colour type
  EXPECT_THAT(header(12, "\x07"), HasSubstr("Invalid IHDR data"));  // no such interlacing
  EXPECT_THAT(header(0, std::string(4, '\0')), HasSubstr("Invalid IHDR data"));  // no columns
  EXPECT_THAT(header(7, "\x03"), HasSubstr("Not enough image data"));            // 3 rows
}

TEST(Png, ImagesAboveTheLimitAreErrors) {
  EXPECT_EQ(error_in(levin::test::kHugePng),
            "data.images.size: cat is an image of 100000 x 100000 pixels, but max_pixels is "
            "89478485; raise max_pixels or remove the file");
  EXPECT_EQ(error_in(levin::test::kHugePng, {.max_pixels = int64_t{1} << 40}),
            "data.images.decode: cat is not a valid PNG image: 68 bytes cannot hold 100000 x "
            "100000 pixels; replace or remove the file");
  EXPECT_EQ(error_id([] { decode(levin::test::kRgbPng, {.max_pixels = 5}); }), "data.images.size");
  EXPECT_EQ(error_id([] { decode(levin::test::kRgbPng, {.max_pixels = 6}); }), "no error");
}

// Pixels as Pillow 13 reads them, within 1.
TEST(Jpeg, HasThePixelsOfPillow) {
  const auto corners = [](std::string_view file) {
    const at::Tensor image = decode(file);
    return torch::cat({image.select(1, 0).select(1, 0), image.select(1, -1).select(1, -1)});
  };
  const auto near = [](const at::Tensor& found, std::vector<int64_t> wanted) {
    return (found.to(at::kLong) - torch::tensor(wanted)).abs().max().item<int64_t>() <= 1;
  };
  EXPECT_TRUE(near(corners(levin::test::kGrayJpeg), {20, 20, 20, 209, 209, 209}));
  EXPECT_TRUE(near(corners(levin::test::kColorJpeg), {43, 47, 32, 196, 212, 199}));
  EXPECT_TRUE(near(corners(levin::test::kCmykJpeg), {210, 200, 220, 44, 36, 45}));
  EXPECT_EQ(decode(levin::test::kColorJpeg).sizes(), (std::vector<int64_t>{3, 9, 17}));
  EXPECT_EQ(decode(levin::test::kGrayJpeg, {.gray = true}).sizes(),
            (std::vector<int64_t>{1, 8, 8}));
}

TEST(Jpeg, TruncatedFilesAreErrors) {
  for (const std::string_view file :
       {levin::test::kGrayJpeg, levin::test::kColorJpeg, levin::test::kCmykJpeg}) {
    for (size_t size = 0; size + 2 < file.size(); ++size) {
      EXPECT_THAT(error_in(file.substr(0, size)),
                  StartsWith(size < 3 ? "data.images.format" : "data.images.decode: cat"))
          << size;
    }
  }
}

TEST(Jpeg, CorruptFilesAreErrors) {
  std::string file(levin::test::kCmykJpeg);
  file.replace(file.size() - 12, 2, "\xff\xd9");  // the end comes too early
  EXPECT_THAT(error_in(file), HasSubstr("Corrupt JPEG data"));
  std::string precision(levin::test::kGrayJpeg);
  precision[precision.find("\xff\xc0") + 4] = 12;
  EXPECT_THAT(error_in(precision), HasSubstr("precision 12"));
  std::string channels(levin::test::kColorJpeg);
  channels[channels.find("\xff\xc2") + 9] = 2;
  EXPECT_THAT(error_in(channels), StartsWith("data.images.decode: cat"));
}

TEST(Jpeg, ImagesAboveTheLimitAreErrors) {
  std::string huge(levin::test::kGrayJpeg);
  huge.replace(huge.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_EQ(error_in(huge),
            "data.images.size: cat is an image of 65500 x 65500 pixels, but max_pixels is "
            "89478485; raise max_pixels or remove the file");
}

TEST(ReadImage, FirstBytesDecideOnTheFormat) {
  const levin::test::Scratch scratch;
  const auto path = levin::test::put(scratch / "wrong.jpg", levin::test::kRgbPng);
  EXPECT_TRUE(torch::equal(levin::data::read_image(path), decode(levin::test::kRgbPng)));
  levin::test::put(scratch / "text.png", "no image");
  EXPECT_EQ(error_of([&] { levin::data::read_image(scratch / "text.png"); }),
            "data.images.format: " + (scratch / "text.png").string() +
                " (8 bytes) is neither a PNG nor a JPEG image; convert or remove the file");
  EXPECT_EQ(error_id([&] { levin::data::read_image(scratch / "none.png"); }), "files.read");
}

TEST(ReadImage, SaysWhatToInstallWhereALibraryIsAbsent) {
  EXPECT_EQ(error_of([] { levin::data::decode_png_without_libpng({}, "cat.png", {1}); }),
            "data.images.library: cat.png is a PNG image, but levin was built without libpng; "
            "install libpng-dev and build levin again");
  EXPECT_EQ(error_of([] { levin::data::decode_jpeg_without_libjpeg({}, "cat.jpg", {1}); }),
            "data.images.library: cat.jpg is a JPEG image, but levin was built without libjpeg; "
            "install libjpeg-dev and build levin again");
}

TEST(ImageOptions, ResizeAndCropGiveTheSizes) {
  const auto size = [](const ImageOptions& options) {
    return decode(levin::test::kColorJpeg, options).sizes().vec();  // 9 x 17
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(size({.resize = {4, 5}}), (Sizes{3, 4, 5}));
  EXPECT_EQ(size({.resize = {18}}), (Sizes{3, 18, 34}));
  EXPECT_EQ(size({.gray = true, .resize = {5}}), (Sizes{1, 5, 9}));
  EXPECT_EQ(size({.resize = {18}, .center_crop = {16}}), (Sizes{3, 16, 16}));
  EXPECT_EQ(size({.center_crop = {12, 7}}), (Sizes{3, 12, 7}));
  const at::Tensor padded = decode(levin::test::kGrayJpeg, {.center_crop = {11, 8}});
  EXPECT_EQ(padded.slice(1, 0, 1).max().item<int64_t>(), 0);
  EXPECT_GT(padded.slice(1, 1, 9).min().item<int64_t>(), 0);
  EXPECT_EQ(padded.slice(1, 9).max().item<int64_t>(), 0);
}

TEST(ImageOptions, MistakesAreErrors) {
  EXPECT_EQ(error_in(levin::test::kRgbPng, {.resize = {0}}),
            "data.images.options: got resize = [0], wanted {}, {size} or {height, width} of at "
            "least 1 each");
  EXPECT_THAT(error_in(levin::test::kRgbPng, {.center_crop = {1, 2, 3}}),
              StartsWith("data.images.options: got center_crop = [1, 2, 3]"));
  EXPECT_THAT(error_in(levin::test::kRgbPng, {.max_pixels = 0}),
              StartsWith("data.images.options: got max_pixels = 0"));
  EXPECT_THAT(error_in(levin::test::kRgbPng, {.resize = {100000, 100000}}),
              StartsWith("data.images.size: cat would be resized to 100000 x 100000 pixels"));
}

}  // namespace
}  // namespace image_files
