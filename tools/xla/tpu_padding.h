#pragma once
// tpu_padding: what a TPU adds to sizes. Its memory and its matrix unit work on tiles of 8 rows by
// 128 lanes (Google, "Cloud TPU performance guide"); which dimensions are rows and lanes is the
// compiler's choice, taken here as the best one.
//
//   padded_bytes({1000, 130}, at::kFloat);  // 557056, of a matrix of 520000

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::tools {

/// Of a tensor that lives in a TPU's memory, as libtpu 0.0.42 lays it out.
int64_t padded_bytes(c10::IntArrayRef sizes, at::ScalarType dtype);

/// Products of matrices [rows, inner] by [inner, columns]; a convolution as products of its
/// channels over the batch: what it loses at most, as a compiler may fold the kernel's places into
/// them.
struct MatrixProduct {
  int64_t count = 1;  ///< batches of a bmm, places of a convolution's kernel
  int64_t rows = 0, inner = 0, columns = 0;

  bool operator==(const MatrixProduct&) const = default;
  double multiplications() const;
  /// The same with its sizes rounded up: rows or columns to 8, the other and inner to 128.
  MatrixProduct padded() const;
  /// "1024 x 768 x 50257", and "12 of " in front for a count.
  std::string text() const;
};

/// What an operator is made of, as graph::cost_of counts it; none of one that is no product.
std::vector<MatrixProduct> products_of(const graph::Node& node);

}  // namespace levin::tools
