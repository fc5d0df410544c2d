#pragma once
// Portions: cuts the parameters of a step into parts whose state fits into memory, in the order of the file.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/files/scratch/swapper.h"

namespace levin::optim {

/// A tensor of optimizer state in the file, dense, at a multiple of 64 bytes.
struct SlotPlace {
  std::string_view name;
  int64_t begin = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType type = at::kFloat;
  int64_t numel = 0;

  int64_t bytes() const { return numel * static_cast<int64_t>(c10::elementSize(type)); }
};

/// The update of a parameter in a step.
struct PortionItem {
  size_t parameter = 0;
  int64_t numel = 0;
  bool is_cut = false;  ///< may be cut between elements: each slot has one value for each
  const std::vector<SlotPlace>* slots = nullptr;
};

/// Elements [begin, begin + count) of a parameter; all of it where it is not cut.
struct PortionPiece {
  size_t item = 0;
  int64_t begin = 0;
  int64_t count = 0;
  /// The memory of a slot: a range of the portion and a byte in it.
  struct Memory {
    size_t range = 0;
    int64_t byte = 0;
  };
  std::vector<Memory> slots = {};
};

/// Pieces of parameters that are in memory together.
struct Portion {
  std::vector<PortionPiece> pieces = {};
  files::ByteRanges ranges = {};
  int64_t bytes = 0;
};

/// Returns portions of about portion_bytes each. An item that is not cut is in one portion, however large.
LEVIN_API std::vector<Portion> cut_portions(const std::vector<PortionItem>& items,
                                            int64_t portion_bytes);

}  // namespace levin::optim
