#include "levin/strategy/fsdp/gather/leaf_uses.h"

#include <ATen/ops/zeros.h>

namespace levin::fsdp {

bool LeafUses::agree(comm::ProcessGroup& group) {
  constexpr int64_t kBits = 3;
  int64_t num_leaves = 0;
  for (const auto& leaves : units_) num_leaves += std::ssize(leaves);
  const at::Tensor all = at::zeros({num_leaves * kBits}, at::kByte);
  auto* bit = all.mutable_data_ptr<uint8_t>();
  for (const auto& leaves : units_) {
    for (const uint8_t uses : leaves) {
      for (int64_t i = 0; i < kBits; ++i) *bit++ = (uses >> i) & 1;
    }
  }
  group.all_reduce(all, ReduceOp::kMax);
  bit = all.mutable_data_ptr<uint8_t>();
  bool is_new = false;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (size_t leaf = 0; leaf < units_[unit].size(); ++leaf) {
      uint8_t uses = 0;
      for (int64_t i = 0; i < kBits; ++i) uses |= static_cast<uint8_t>(*bit++ << i);
      const auto type = uses == kToBFloat16 ? std::optional(at::kBFloat16)
                        : uses == kToHalf   ? std::optional(at::kHalf)
                                            : std::nullopt;
      is_new |= cast_to_[unit][leaf] != type;
      cast_to_[unit][leaf] = type;
      units_[unit][leaf] = uses;
    }
  }
  return is_new;
}

}  // namespace levin::fsdp
