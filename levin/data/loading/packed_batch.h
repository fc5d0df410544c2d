#pragma once
// PackedBatch: a batch in one piece of memory, as it goes from rank to rank. A DispatchedLoader
// sends it: a layout that all ranks know, and bytes for each of them.
//
//   BatchLayout layout = BatchLayout::of(batch, world_size);
//   at::Tensor bytes = pack(batch, layout, rank, world_size);
//   Batch part = unpack(bytes, layout, rows_of(batch.size(), rank, world_size));

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/state.h"
#include "levin/data/batch.h"

namespace levin::detail {

/// Returns how many of `rows` samples go to a rank: sample i goes to rank i % world_size.
inline int64_t rows_of(int64_t rows, int64_t rank, int64_t world_size) {
  return std::max<int64_t>(rows - rank + world_size - 1, 0) / world_size;
}

/// The places of the fields in one rank's part.
struct BatchLayout {
  struct Field {
    std::string name;
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> sizes;  ///< sizes of the part; the samples come first if is_split
    bool is_split = true;  ///< else it goes to all ranks unchanged: it has no row for a sample
    int64_t offset = 0;    ///< bytes
    int64_t bytes = 0;

    at::Tensor in(const at::Tensor& part) const {
      return part.narrow(0, offset, bytes).view(type).view(sizes);
    }
  };
  static constexpr int64_t kAlignment = 64;  ///< bytes; of the fields
  std::vector<Field> fields;
  int64_t bytes = 0;

  /// Makes a layout with room for the longest part.
  static BatchLayout of(const Batch& batch, int64_t world_size) {
    BatchLayout layout;
    const int64_t rows = batch.size();
    for (const auto& [name, tensor] : batch) {
      Field field{.name = name, .type = tensor.scalar_type(), .sizes = tensor.sizes().vec()};
      field.is_split = tensor.dim() > 0 && tensor.size(0) == rows;
      if (field.is_split) field.sizes.front() = rows_of(rows, 0, world_size);
      field.offset = layout.bytes;
      field.bytes = static_cast<int64_t>(tensor.element_size());
      for (const int64_t size : field.sizes) field.bytes *= size;
      layout.bytes += (field.bytes + kAlignment - 1) / kAlignment * kAlignment;
      layout.fields.push_back(std::move(field));
    }
    return layout;
  }

  State state_dict() const {
    State state;
    for (size_t i = 0; i < fields.size(); ++i) {
      const Field& field = fields[i];
      State one;
      one.set("name", field.name)
          .set("type", static_cast<int64_t>(field.type))
          .set("sizes", at::tensor(field.sizes, at::kLong))
          .set("is_split", field.is_split)
          .set("offset", field.offset)
          .set("bytes", field.bytes);
      state.set(std::to_string(i), std::move(one));
    }
    state.set("bytes", bytes);
    return state;
  }

  static BatchLayout from(const State& state) {
    BatchLayout layout;
    layout.bytes = state.integer("bytes");
    for (size_t i = 0; i + 1 < state.values().size(); ++i) {
      const State& one = state.child(std::to_string(i));
      const at::Tensor& sizes = one.tensor("sizes");
      const auto* size = sizes.const_data_ptr<int64_t>();
      layout.fields.push_back({.name = one.text("name"),
                               .type = static_cast<at::ScalarType>(one.integer("type")),
                               .sizes = {size, size + sizes.numel()},
                               .is_split = one.boolean("is_split"),
                               .offset = one.integer("offset"),
                               .bytes = one.integer("bytes")});
    }
    return layout;
  }
};

/// uint8 [layout.bytes]: what goes to that rank.
inline at::Tensor pack(const Batch& batch, const BatchLayout& layout, int64_t rank,
                       int64_t world_size) {
  const at::Tensor bytes = at::empty({layout.bytes}, at::TensorOptions(at::kByte));
  for (const BatchLayout::Field& field : layout.fields) {
    const at::Tensor& tensor = batch[field.name];
    const at::Tensor place = field.in(bytes);
    if (!field.is_split) {
      place.copy_(tensor);
      continue;
    }
    const int64_t rows = rows_of(tensor.size(0), rank, world_size);
    if (rows > 0) {
      place.narrow(0, 0, rows).copy_(tensor.slice(0, rank, tensor.size(0), world_size));
    }
  }
  return bytes;
}

/// Views of the bytes.
inline Batch unpack(const at::Tensor& bytes, const BatchLayout& layout, int64_t rows) {
  Batch batch;
  for (const BatchLayout::Field& field : layout.fields) {
    const at::Tensor whole = field.in(bytes);
    batch.set(field.name, field.is_split ? whole.narrow(0, 0, rows) : whole);
  }
  return batch;
}

}  // namespace levin::detail
