#include "levin/xla/stablehlo/indices.h"

#include <numeric>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {

Hlo wrapped(Lowering& at, const Hlo& index, int64_t size) {
  const Term places(at.hlo, at.hlo.convert(index, at::kLong));
  return where(places < 0, places + static_cast<double>(size), places);
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
