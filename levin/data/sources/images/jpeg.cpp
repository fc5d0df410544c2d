#include <ATen/ops/empty.h>
#include <jerror.h>
#include <jpeglib.h>  // after cstdio, which it needs

#include <csetjmp>
#include <cstdio>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/sources/images/decode_impl.h"

namespace levin::data {
namespace {

constexpr int kMostScans = 100;  // of a progressive image; usual ones have about 10

/// (a * b + 127) / 255 rounded, as MULDIV255 of PIL.
int scaled(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/// One image that is read. libjpeg is left by longjmp; see PngReader.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    jpeg_.client_data = this;
  }
  ~JpegReader() {
    if (is_made_) jpeg_destroy_decompress(&jpeg_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* error() const { return error_; }
  int64_t height() const { return jpeg_.image_height; }
  int64_t width() const { return jpeg_.image_width; }
  int64_t channels() const { return jpeg_.num_components; }

  /// Reads what comes before the pixels; false on an error.
  bool read_header() {
    if (setjmp(jump_) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    is_made_ = true;
    progress_.progress_monitor = on_progress;
    jpeg_.progress = &progress_;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes_.data());
    source_.bytes_in_buffer = bytes_.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = on_end;
    source_.skip_input_data = on_skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    jpeg_.src = &source_;
    jpeg_read_header(&jpeg_, TRUE);
    switch (jpeg_.num_components) {
      case 1:
        jpeg_.out_color_space = JCS_GRAYSCALE;
        break;
      case 3:
        jpeg_.out_color_space = JCS_RGB;
        break;
      case 4:
        jpeg_.out_color_space = JCS_CMYK;
        break;
      default:
        std::snprintf(error_, sizeof(error_), "it has %d channels, wanted 1, 3 or 4",
                      jpeg_.num_components);
        return false;
    }
    return true;
  }

  /// Writes the pixels, [height, width, channels]; false on an error.
  bool read_pixels(uint8_t* pixels) {
    if (setjmp(jump_) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    const auto row_size = static_cast<size_t>(width() * channels());
    if (jpeg_.output_components != channels() || jpeg_.output_width != jpeg_.image_width ||
        jpeg_.output_height != jpeg_.image_height) {
      std::snprintf(error_, sizeof(error_), "unexpected size of a row");
      return false;
    }
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = pixels + jpeg_.output_scanline * row_size;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

 private:
  static JpegReader& reader_of(j_common_ptr jpeg) {
    return *static_cast<JpegReader*>(jpeg->client_data);
  }
  [[noreturn]] static void stop(j_common_ptr jpeg, const char* text) {
    JpegReader& reader = reader_of(jpeg);
    std::snprintf(reader.error_, sizeof(reader.error_), "%s", text);
    std::longjmp(reader.jump_, 1);
  }
  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    stop(jpeg, text);
  }
  /// After other warnings libjpeg goes on with pixels that are not those of the image.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    switch (jpeg->err->msg_code) {
      case JWRN_ADOBE_XFORM:
      case JWRN_EXTRANEOUS_DATA:
      case JWRN_JFIF_MAJOR:
      case JWRN_TOO_MUCH_DATA:
        return;
      default:
        on_error(jpeg);
    }
  }
  static void on_progress(j_common_ptr jpeg) {
    if (reader_of(jpeg).jpeg_.input_scan_number > kMostScans) stop(jpeg, "it has too many scans");
  }
  static boolean on_end(j_decompress_ptr jpeg) {
    stop(reinterpret_cast<j_common_ptr>(jpeg), "the file is truncated");
  }
  static void on_skip(j_decompress_ptr jpeg, long count) {
    if (count <= 0) return;
    if (static_cast<size_t>(count) > jpeg->src->bytes_in_buffer) on_end(jpeg);
    jpeg->src->next_input_byte += count;
    jpeg->src->bytes_in_buffer -= static_cast<size_t>(count);
  }

  std::span<const std::byte> bytes_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_source_mgr source_{};
  std::jmp_buf jump_{};
  bool is_made_ = false;
  char error_[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void fail_jpeg(const JpegReader& reader, const std::string& name) {
  LEVIN_FAIL("data.images.decode", "{} is not a valid JPEG image: {}; replace or remove the file",
             name, reader.error());
}

/// CMYK to RGB as PIL does, which takes all such files as inverted (Adobe).
at::Tensor rgb_of_cmyk(const at::Tensor& cmyk) {
  at::Tensor rgb = at::empty({cmyk.size(0), cmyk.size(1), 3}, at::kByte);
  const uint8_t* from = cmyk.const_data_ptr<uint8_t>();
  uint8_t* to = rgb.mutable_data_ptr<uint8_t>();
  for (int64_t pixel = 0; pixel < cmyk.size(0) * cmyk.size(1); ++pixel, from += 4, to += 3) {
    const int light = from[3];
    for (int i = 0; i < 3; ++i) to[i] = static_cast<uint8_t>(light - scaled(255 - from[i], light));
  }
  return rgb;
}

}  // namespace

at::Tensor decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                       PixelLimit limit) {
  JpegReader reader(bytes);
  if (!reader.read_header()) fail_jpeg(reader, name);
  limit.check(reader.height(), reader.width(), name);
  at::Tensor pixels = at::empty({reader.height(), reader.width(), reader.channels()}, at::kByte);
  if (!reader.read_pixels(pixels.mutable_data_ptr<uint8_t>())) fail_jpeg(reader, name);
  return reader.channels() == 4 ? rgb_of_cmyk(pixels) : pixels;
}

}  // namespace levin::data
