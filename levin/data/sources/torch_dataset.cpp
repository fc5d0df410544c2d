#include "levin/base/check.h"
#include "levin/data/loader.h"

namespace levin::detail {

int64_t known_size(std::optional<size_t> size) {
  LEVIN_CHECK(size.has_value(), "data.torch_dataset.size",
              "this torch::data dataset does not know its size; give its loader to "
              "Accelerator::prepare instead");
  return static_cast<int64_t>(*size);
}

}  // namespace levin::detail
