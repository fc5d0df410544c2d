#include "levin/base/check.h"
#include "levin/data/sources/images/decode_impl.h"

namespace levin::data {

at::Tensor decode_png(std::span<const std::byte>, const std::string& name, PixelLimit) {
  LEVIN_FAIL("data.images.library",
             "{} is a PNG image, but levin was built without libpng; install libpng-dev and build "
             "levin again",
             name);
}

}  // namespace levin::data
