#include "levin/base/check.h"
#include "levin/data/sources/images/decode_impl.h"

namespace levin::data {

at::Tensor decode_jpeg(std::span<const std::byte>, const std::string& name, PixelLimit) {
  LEVIN_FAIL("data.images.library",
             "{} is a JPEG image, but levin was built without libjpeg; install libjpeg-dev and "
             "build levin again",
             name);
}

}  // namespace levin::data
