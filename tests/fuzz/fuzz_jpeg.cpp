// libFuzzer: decode_image throws levin::Error or gives the pixels of a JPEG image, within the limit.
//
//   fuzz_jpeg -max_total_time=20

#include <ATen/core/Tensor.h>

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMostPixels = 1 << 18;
  const Limits limits(size);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  for (const bool gray : {false, true}) {
    try {
      const at::Tensor image =
          levin::data::decode_image(bytes, "fuzz", {.gray = gray, .max_pixels = kMostPixels});
      if (image.dim() != 3 || image.size(0) != (gray ? 1 : 3) || !image.is_contiguous()) {
        std::abort();
      }
      if (image.numel() == 0 || image.size(1) * image.size(2) > kMostPixels) std::abort();
    } catch (const levin::Error&) {
    }
  }
  return 0;
}
