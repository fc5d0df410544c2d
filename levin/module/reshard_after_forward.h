#pragma once
// ReshardAfterForward: what becomes of a gathered unit between forward and backward; true, false or a
// number of ranks. FsdpOptions has one for all units, WrapOptions one for a unit.
//
//   levin::Trainer trainer({.strategy = "fsdp", .engine = {.fsdp = {.reshard_after_forward = 8}}});

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {

/// What becomes of a gathered unit between forward and backward, as `reshard_after_forward` of
/// PyTorch's fully_shard. true: it is freed, and backward gathers it over all ranks. false: it stays
/// gathered. A number of ranks N: it is freed, but each of N neighbouring ranks keeps 1/N of it, and
/// backward gathers it from these N ranks. It applies where units are all-gathered; ranks that share
/// memory have nothing to free.
class LEVIN_API ReshardAfterForward {
 public:
  /// Makes one that is not set: the default of whoever reads it applies.
  ReshardAfterForward() = default;
  /// true or false.
  template <std::same_as<bool> T>
  ReshardAfterForward(T reshards) : ranks_(reshards ? 0 : 1) {}  // NOLINT: reads as the value it is
  /// A number of ranks; 1 is false. It must divide the number of ranks that share a copy of the
  /// parameters. Throws Error "base.text" for a number below 1.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  ReshardAfterForward(T ranks) : ranks_(check(static_cast<int64_t>(ranks))) {}  // NOLINT

  /// Returns whether a value was set.
  bool is_set() const { return ranks_ >= 0; }
  /// Returns over how many of so many ranks a unit is sharded after forward: 1 if it stays gathered,
  /// all of them for true.
  int64_t ranks_of(int64_t all) const { return ranks_ == 0 ? all : ranks_; }

  friend LEVIN_API std::string to_text(const ReshardAfterForward& value);
  friend LEVIN_API void from_text(std::string_view text, ReshardAfterForward& value);

 private:
  static int64_t check(int64_t ranks);

  int64_t ranks_ = -1;  ///< 0: all; -1: not set
};
/// Returns "true", "false", a number of ranks, or "" for a value that is not set.
LEVIN_API std::string to_text(const ReshardAfterForward& value);
/// Reads such text. Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, ReshardAfterForward& value);

}  // namespace levin
