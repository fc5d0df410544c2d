// libFuzzer: decode_image throws levin::Error or gives the pixels of a PNG image, within the limit. Each input is read
// as it is, and with the checksums that its chunks must have, so that what follows them is reached.
//
//   fuzz_png -max_total_time=20

#include <ATen/core/Tensor.h>
#include <boost/crc.hpp>

#include <algorithm>
#include <string>

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"

namespace {

void read_png(const std::string& file, bool gray) {
  constexpr int64_t kMostPixels = 1 << 18;
  try {
    const at::Tensor image = levin::data::decode_image(std::as_bytes(std::span(file)), "fuzz",
                                                       {.gray = gray, .max_pixels = kMostPixels});
    if (image.dim() != 3 || image.size(0) != (gray ? 1 : 3) || !image.is_contiguous()) std::abort();
    if (image.numel() == 0 || image.size(1) * image.size(2) > kMostPixels) std::abort();
  } catch (const levin::Error&) {
  }
}

std::string with_checksums(std::string file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    size_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<uint8_t>(file[at + i]);
    size = std::min(size, file.size() - at - 12);
    boost::crc_32_type crc;
    crc.process_bytes(file.data() + at + 4, 4 + size);
    for (size_t i = 0; i < 4; ++i) {
      file[at + i] = static_cast<char>(size >> (24 - 8 * i));
      file[at + 8 + size + i] = static_cast<char>(crc.checksum() >> (24 - 8 * i));
    }
    at += 12 + size;
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const std::string file(reinterpret_cast<const char*>(data), size);
  read_png(file, size % 2 == 0);
  read_png(with_checksums(file), size % 2 == 1);
  return 0;
}
