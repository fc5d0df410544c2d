#include "levin/checkpoint/checkpoint_reader.h"
#include "levin/shard/leaf.h"

namespace levin {

std::optional<Rows> rows_of(const at::Tensor& leaf) {
  const auto layout = shard::layout_of(leaf);
  if (layout == nullptr || layout->sizes().empty()) return std::nullopt;
  const shard::Box box = layout->box(shard::mesh_of(leaf)->rank());
  return Rows{box.offsets[0], box.offsets[0] + box.sizes[0]};
}

}  // namespace levin
