#pragma once
// Box: a part of a tensor, by its place in the whole. What ranks hold, ask for and send each other.
//
//   Box rows{{128, 0}, {64, 32}};              // rows 128 to 191, columns 0 to 31
//   Box both = intersection(rows, held);
//   at::Tensor view = part_of(local, held, both);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::shard {

/// One offset and one size a dim; a tensor without dims is one element.
struct LEVIN_API Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

LEVIN_API Box box_of_whole(std::span<const int64_t> sizes);
/// Of boxes of one tensor. Where they have nothing in common a size is 0.
LEVIN_API Box intersection(const Box& one, const Box& other);
/// True for an inner one without elements.
LEVIN_API bool contains(const Box& outer, const Box& inner);
/// A view of local, which is what the box held has of the whole: what inner, which held contains, has.
LEVIN_API at::Tensor part_of(const at::Tensor& local, const Box& held, const Box& inner);

/// "[128:192, 0:32]"
LEVIN_API std::string to_text(const Box& box);

}  // namespace levin::shard
