// Elements by their places: gather, scatter, sort.
#include <fmt/format.h>

#include <iterator>

#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {

Hlo Builder::gather(const Hlo& x, const Hlo& indices, const GatherDims& dims, Dims result_sizes) {
  return call("gather", {{x, indices}},
              fmt::format("dimension_numbers = #stablehlo.gather<offset_dims = [{}], "
                          "collapsed_slice_dims = [{}], start_index_map = [{}], index_vector_dim "
                          "= {}>, slice_sizes = {}, indices_are_sorted = false",
                          list_text(dims.offset), list_text(dims.collapsed),
                          list_text(dims.start_index_map), dims.index_vector_dim,
                          array_text(dims.slice_sizes)),
              x.dtype, std::move(result_sizes));
}

Hlo Builder::scatter(std::string_view name, const Hlo& x, const Hlo& indices, const Hlo& updates,
                     const ScatterDims& dims, bool unique_indices) {
  const std::string region = region_of(name, x.dtype);
  return call(
      "scatter", {{x, indices, updates}},
      fmt::format("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{}], "
                  "inserted_window_dims = [{}], scatter_dims_to_operand_dims = [{}], "
                  "index_vector_dim = {}>, indices_are_sorted = false, unique_indices = {}",
                  list_text(dims.update_window), list_text(dims.inserted_window),
                  list_text(dims.scatter_dims_to_operand), dims.index_vector_dim, unique_indices),
      x.dtype, x.sizes, region);
}

std::vector<Hlo> Builder::sort(const std::vector<Hlo>& operands, int64_t dim, bool descending) {
  std::vector<Hlo> results;
  std::vector<int64_t> arguments;
  std::string region = " ({\n  ^bb0(";
  for (size_t i = 0; i < 2 * operands.size(); ++i) {
    arguments.push_back(next_id_++);
    region += fmt::format("{}%{}: {}", i == 0 ? "" : ", ", arguments.back(),
                          type_text(operands[i / 2].dtype, {}));
  }
  const bool is_float = at::isFloatingType(operands.front().dtype);
  const int64_t before = next_id_++;
  const std::string type = type_text(operands.front().dtype, {});
  region += fmt::format(
      "):\n    %{0} = \"stablehlo.compare\"(%{1}, %{2}) {{comparison_direction = "
      "#stablehlo<comparison_direction {3}>{4}}} : ({5}, {5}) -> tensor<i1>\n    "
      "\"stablehlo.return\"(%{0}) : (tensor<i1>) -> ()\n  }})",
      before, arguments[0], arguments[1], descending ? "GT" : "LT",
      is_float ? ", compare_type = #stablehlo<comparison_type TOTALORDER>" : "", type);
  std::string types;
  std::string names;
  for (const Hlo& operand : operands) {
    types += (types.empty() ? "" : ", ") + type_text(operand);
    names += fmt::format("{}%{}", names.empty() ? "" : ", ", operand.id);
  }
  const int64_t pack = next_id_;
  next_id_ += static_cast<int64_t>(operands.size());
  // MLIR's results of one operator are %n#0, %n#1; names of their own come from reshapes to the
  // same sizes, which XLA drops.
  fmt::format_to(std::back_inserter(body_),
                 "  %{}:{} = \"stablehlo.sort\"({}){} {{dimension = {} : i64, is_stable = true}} : "
                 "({}) -> ({})\n",
                 pack, operands.size(), names, region, dim, types, types);
  for (size_t i = 0; i < operands.size(); ++i) {
    results.push_back(make(operands[i].dtype, operands[i].sizes));
    fmt::format_to(std::back_inserter(body_),
                   "  %{} = \"stablehlo.reshape\"(%{}#{}) : ({}) -> {}\n", results.back().id, pack,
                   i, type_text(operands[i]), type_text(operands[i]));
  }
  return results;
}

}  // namespace levin::xla
