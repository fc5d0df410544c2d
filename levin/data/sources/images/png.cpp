#include <ATen/ops/empty.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/sources/images/decode_impl.h"

namespace levin::data {
namespace {

// Deflate makes at most 1032 bytes of one: an image that claims more is cut short.
constexpr double kMostBytesOfAByte = 1040;

/// One image that is read. libpng leaves its functions by longjmp, which must not pass over objects
/// with destructors: they all live here, outside the functions that call setjmp.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  const char* error() const { return error_; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t row_bytes() const { return row_bytes_; }  ///< of the file, before zlib

  /// Reads what comes before the pixels; false on an error.
  bool read_header() {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    // Chunks beside the pixels (texts, colour profiles) are skipped unread.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_benign_errors(png_, 1);
    png_read_info(png_, info_);
    height_ = png_get_image_height(png_, info_);
    width_ = png_get_image_width(png_, info_);
    row_bytes_ = static_cast<int64_t>(png_get_rowbytes(png_, info_));
    const png_byte color = png_get_color_type(png_, info_);
    channels_ = (color & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    png_set_strip_16(png_);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (channels_ == 1) png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_alpha(png_);
    num_passes_ = png_set_interlace_handling(png_);
    return true;
  }

  /// Writes the pixels, [height, width, channels]; false on an error.
  bool read_pixels(uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_update_info(png_, info_);
    const auto row_size = static_cast<size_t>(width_ * channels_);
    if (png_get_rowbytes(png_, info_) != row_size) png_error(png_, "unexpected size of a row");
    for (int pass = 0; pass < num_passes_; ++pass) {
      for (int64_t row = 0; row < height_; ++row) {
        png_read_row(png_, pixels + static_cast<size_t>(row) * row_size, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  static PngReader& reader_of(png_structp png, png_voidp self) {
    return *static_cast<PngReader*>(self);
  }
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    PngReader& reader = reader_of(png, png_get_error_ptr(png));
    std::snprintf(reader.error_, sizeof(reader.error_), "%s", text);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, size_t size) {
    PngReader& reader = reader_of(png, png_get_io_ptr(png));
    if (size > reader.bytes_.size() - reader.position_) png_error(png, "the file is truncated");
    std::memcpy(out, reader.bytes_.data() + reader.position_, size);
    reader.position_ += size;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char error_[160] = "libpng could not start";
  int64_t height_ = 0;
  int64_t width_ = 0;
  int64_t channels_ = 0;
  int64_t row_bytes_ = 0;
  int num_passes_ = 1;
};

[[noreturn]] void fail_png(const PngReader& reader, const std::string& name) {
  LEVIN_FAIL("data.images.decode", "{} is not a valid PNG image: {}; replace or remove the file",
             name, reader.error());
}

}  // namespace

at::Tensor decode_png(std::span<const std::byte> bytes, const std::string& name, PixelLimit limit) {
  PngReader reader(bytes);
  if (!reader.read_header()) fail_png(reader, name);
  limit.check(reader.height(), reader.width(), name);
  const double claimed =
      static_cast<double>(reader.height()) * static_cast<double>(reader.row_bytes());
  LEVIN_CHECK(claimed <= kMostBytesOfAByte * static_cast<double>(bytes.size()),
              "data.images.decode",
              "{} is not a valid PNG image: {} bytes cannot hold {} x {} pixels; replace or remove "
              "the file",
              name, bytes.size(), reader.height(), reader.width());
  at::Tensor pixels = at::empty({reader.height(), reader.width(), reader.channels()}, at::kByte);
  if (!reader.read_pixels(pixels.mutable_data_ptr<uint8_t>())) fail_png(reader, name);
  return pixels;
}

}  // namespace levin::data
