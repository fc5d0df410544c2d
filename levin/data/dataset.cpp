#include "levin/data/dataset.h"

namespace levin {

Dataset::~Dataset() = default;

Batch Dataset::draw(std::span<const int64_t> indices, const DrawContext&, Batch) const {
  return get(indices);
}

}  // namespace levin
