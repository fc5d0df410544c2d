#pragma once
// Indices that are tensors: which elements of a value they name.

#include <utility>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {

/// Indices from 0 on: negative ones count from the end.
Hlo wrapped(Lowering& at, const Hlo& index, int64_t size);

/// What was read from `size` elements, places of which stand in the result's dimensions `dims`,
/// with NaN where there is no such place. ATen throws there, which a program cannot, and the
/// nearest element would be trained on in silence. Whole numbers know no NaN and stay that one.
Hlo nan_beyond(Lowering& at, const Hlo& read, const Hlo& places, int64_t size, const Dims& dims);

/// A tensor without dimensions as one of one, and which dimension argument 1 names.
std::pair<Hlo, int64_t> with_dim(Lowering& at, size_t tensor);

/// 0, 1, ... below rank.
Dims all_dims(int64_t rank);

/// The places that torch.gather and torch.scatter name: index[i][j][k] in one dimension, and i, j,
/// k in the others.
Hlo element_places(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index);
/// What stands there.
Hlo gather_elements(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index);

}  // namespace levin::xla
