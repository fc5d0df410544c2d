#include "levin/xla/stablehlo/indices.h"

#include <limits>
#include <numeric>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {

Hlo wrapped(Lowering& at, const Hlo& index, int64_t size) {
  const Term places(at.hlo, at.hlo.convert(index, at::kLong));
  return where(places < 0, places + static_cast<double>(size), places);
}

Hlo nan_beyond(Lowering& at, const Hlo& read, const Hlo& places, int64_t size, const Dims& dims) {
  if (!at::isFloatingType(read.dtype)) return read;
  const Term place(at.hlo, places);
  const Term is_beyond = (place < 0) | (place >= static_cast<double>(size));
  const Term everywhere(at.hlo, at.hlo.broadcast_in_dim(is_beyond, read.sizes, dims));
  return where(everywhere, std::numeric_limits<double>::quiet_NaN(), Term(at.hlo, read));
}

std::pair<Hlo, int64_t> with_dim(Lowering& at, size_t tensor) {
  const Hlo x = at.tensor(tensor);
  if (x.rank() == 0) return {at.hlo.reshape(x, {1}), 0};
  return {x, at.dim(1, x.rank())};
}

Dims all_dims(int64_t rank) {
  Dims dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Hlo element_places(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  std::vector<Hlo> columns;
  Dims with_vector = index.sizes;
  with_vector.push_back(1);
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Hlo place =
        i == dim ? wrapped(at, index, x.sizes[dim]) : at.hlo.iota(at::kLong, index.sizes, i);
    columns.push_back(at.hlo.reshape(place, with_vector));
  }
  return at.hlo.concatenate(columns, index.rank());
}

Hlo gather_elements(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  const GatherDims dims{.collapsed = all_dims(x.rank()),
                        .start_index_map = all_dims(x.rank()),
                        .index_vector_dim = x.rank(),
                        .slice_sizes = Dims(x.sizes.size(), 1)};
  return at.hlo.gather(x, element_places(at, x, dim, index), dims, index.sizes);
}

}  // namespace levin::xla
