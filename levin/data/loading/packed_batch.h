#pragma once
// PackedBatch: a batch in one piece of memory, as it goes from rank to rank.
// What a DispatchedLoader sends: a layout that all ranks know, and bytes for each of them.
//
//   BatchLayout layout = BatchLayout::of(batch, world_size);
//   at::Tensor bytes = pack(batch, layout, rank, world_size);
//   Batch part = unpack(bytes, layout, rows_of(batch.size(), rank, world_size));

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/data/batch.h"

namespace levin::detail {

/// Of `rows` samples those that go to a rank: sample i is rank i % world_size's.
int64_t rows_of(int64_t rows, int64_t rank, int64_t world_size);

/// Where each field of one rank's part lies.
struct BatchLayout {
  struct Field {
    std::string name;
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> sizes;  ///< of the part; the samples come first where is_split
    bool is_split = true;        ///< else it goes to all ranks as it is: it has no row for a sample
    int64_t offset = 0;          ///< bytes
    int64_t bytes = 0;
  };
  std::vector<Field> fields;
  int64_t bytes = 0;

  /// With room for the longest of the parts.
  static BatchLayout of(const Batch& batch, int64_t world_size);
  State state_dict() const;
  static BatchLayout from(const State& state);
};

/// uint8 [layout.bytes]: what goes to that rank.
at::Tensor pack(const Batch& batch, const BatchLayout& layout, int64_t rank, int64_t world_size);
/// Views of the bytes.
Batch unpack(const at::Tensor& bytes, const BatchLayout& layout, int64_t rows);

}  // namespace levin::detail
