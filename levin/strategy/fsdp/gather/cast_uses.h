#pragma once
// CastUses: how passes use each parameter of each unit: only by autocast's cast to one dtype, or in its
// own dtype too. The ranks agree on it.

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::fsdp {

class CastUses {
 public:
  void add_unit(size_t num_parameters) {
    units_.emplace_back(num_parameters, 0);
    cast_to_.emplace_back(num_parameters, std::nullopt);
  }
  void note_cast(size_t unit, size_t number, at::ScalarType to) {
    units_[unit][number] |= to == at::kBFloat16 ? kToBFloat16
                            : to == at::kHalf   ? kToHalf
                                                : kAsStored;
  }
  void note_used_as_stored(size_t unit, size_t number) { units_[unit][number] |= kAsStored; }

  /// Combines the uses of all ranks; returns whether anything has changed. All ranks call it.
  bool agree(comm::ProcessGroup& group) {
    constexpr int64_t kBits = 3;
    int64_t num_parameters = 0;
    for (const auto& parameters : units_) num_parameters += std::ssize(parameters);
    const at::Tensor all = at::zeros({num_parameters * kBits}, at::kByte);
    auto* bit = all.mutable_data_ptr<uint8_t>();
    for (const auto& parameters : units_) {
      for (const uint8_t uses : parameters) {
        for (int64_t i = 0; i < kBits; ++i) *bit++ = (uses >> i) & 1;
      }
    }
    group.all_reduce(all, ReduceOp::kMax);
    bit = all.mutable_data_ptr<uint8_t>();
    bool is_new = false;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      for (size_t number = 0; number < units_[unit].size(); ++number) {
        uint8_t uses = 0;
        for (int64_t i = 0; i < kBits; ++i) uses |= static_cast<uint8_t>(*bit++ << i);
        const auto type = uses == kToBFloat16 ? std::optional(at::kBFloat16)
                          : uses == kToHalf   ? std::optional(at::kHalf)
                                              : std::nullopt;
        is_new |= cast_to_[unit][number] != type;
        cast_to_[unit][number] = type;
        units_[unit][number] = uses;
      }
    }
    return is_new;
  }

  /// Returns the type to which all ranks always cast the leaf before its use, if they agreed on
  /// one.
  std::optional<at::ScalarType> cast_to(size_t unit, size_t number) const {
    return cast_to_[unit][number];
  }

 private:
  static constexpr uint8_t kToBFloat16 = 1;
  static constexpr uint8_t kToHalf = 2;
  static constexpr uint8_t kAsStored = 4;
  std::vector<std::vector<uint8_t>> units_;
  std::vector<std::vector<std::optional<at::ScalarType>>> cast_to_;
};

}  // namespace levin::fsdp
