#pragma once
// Gradients' inside.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategy/fsdp/gradients/gradients.h"

namespace levin::fsdp {

/// Gradients of at least this many bytes are computed in place. Smaller ones, which are in a cache, are copied.
constexpr size_t kLargeGradient = 256 << 10;

/// A parameter's gradient.
struct Gradients::Member {
  Leaf* leaf = nullptr;
  bool trains = false;       ///< has a place among the unit's gradients
  int64_t offset = 0;        ///< in those
  int64_t own_offset = 0;    ///< of its rows, among this rank's rows
  size_t bytes = 0;          ///< bytes of the full gradient
  bool arrived = false;      ///< in this backward, or before it where that counts
  bool is_given = false;     ///< in this backward its place was given to a tensor
  bool is_in_place = false;  ///< the tensor in its place was its gradient
  bool stays_away = false;   ///< once the tensor in its place was not its gradient
  GradientRing::Count num_lent =
      std::make_shared<std::atomic<int64_t>>(0);  ///< tensors in its place
  at::Tensor waiting = {};                        ///< whole, until there is a buffer for it
  at::Tensor held = {};  ///< whole: of batches of this rank that did not synchronize
  int64_t held_version = 0;
  at::Tensor aside = {};  ///< rows: what was summed over the ranks before
};

/// A unit's gradients.
struct Gradients::Part {
  Unit* unit = nullptr;
  std::vector<Member> members;
  int64_t numel = 0;
  std::vector<int64_t> runs;  ///< elements of each rank's rows
  at::ScalarType type = at::kFloat;
  at::Tensor own = {};                ///< this rank's rows, kept from step to step
  at::Tensor target = {};             ///< memory to sum into: own, or memory for once
  at::Tensor memory = {};             ///< memory of its gradients
  std::optional<size_t> buffer = {};  ///< buffer of the ring that the memory is, if it is one
  int64_t missing = 0;
  bool launched = false;
  size_t first_flag = 0;  ///< first flag of its members in used_
};

}  // namespace levin::fsdp
