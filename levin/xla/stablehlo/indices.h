#pragma once
// Indices that are tensors: which elements of a value they name.

#include <utility>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {

/// Indices from 0 on: negative ones count from the end.
Hlo wrapped(Lowering& at, const Hlo& index, int64_t size);

/// Returns `read`, read from `size` elements at `places` (dimensions `dims` of the result), with
/// NaN for places out of range. ATen throws there, which a program cannot do; with the nearest
/// element, training would go on silently. Integers have no NaN and keep that element.
Hlo nan_beyond(Lowering& at, const Hlo& read, const Hlo& places, int64_t size, const Dims& dims);

/// A tensor without dimensions as one of one, and which dimension argument 1 names.
std::pair<Hlo, int64_t> with_dim(Lowering& at, size_t tensor);

/// 0, 1, ... below rank.
Dims all_dims(int64_t rank);

/// The places that torch.gather and torch.scatter name: index[i][j][k] in one dimension, and i, j,
/// k in the others.
Hlo element_places(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index);
/// Returns the elements at these places.
Hlo gather_elements(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index);

}  // namespace levin::xla
