#pragma once
// Builder: writes the text of a StableHLO program, one operator after the other. Knows shapes and
// dtypes, and nothing of ATen.
//
//   Builder hlo;
//   const Hlo x = hlo.parameter(at::kFloat, {8, 784});
//   const Hlo y = hlo.unary("tanh", x);
//   const std::string text = hlo.finish("step", {y});

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/xla/stablehlo/hlo.h"
#include "levin/xla/stablehlo/window.h"

namespace levin::xla {

/// The dimension numbers of a gather, in StableHLO's words.
struct GatherDims {
  Dims offset, collapsed, start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
};
struct ScatterDims {
  Dims update_window, inserted_window, scatter_dims_to_operand;
  int64_t index_vector_dim = 0;
};

class Builder {
 public:
  /// Attributes of the argument, as `tf.aliasing_output = 0 : i32`.
  Hlo parameter(at::ScalarType dtype, Dims sizes, std::string attributes = "");
  void set_attributes(const Hlo& parameter, std::string attributes);

  /// Returns a tensor with the number in all elements.
  Hlo constant(const at::Scalar& number, at::ScalarType dtype, Dims sizes = {});
  /// The bits of a float: an infinity, a NaN.
  Hlo infinity(at::ScalarType dtype, bool is_negative);
  /// The least (greatest) number that the dtype has.
  Hlo lowest(at::ScalarType dtype);
  Hlo highest(at::ScalarType dtype);
  /// Its elements, one by one: for small ones.
  Hlo literal(const at::Tensor& tensor);
  Hlo iota(at::ScalarType dtype, Dims sizes, int64_t dim);

  /// Names are StableHLO's, or CHLO's with their dialect ("chlo.erf").
  Hlo unary(std::string_view name, const Hlo& x);
  Hlo binary(std::string_view name, const Hlo& a, const Hlo& b);
  /// "EQ", "NE", "GE", "GT", "LE", "LT"
  Hlo compare(std::string_view direction, const Hlo& a, const Hlo& b);
  Hlo select(const Hlo& condition, const Hlo& yes, const Hlo& no);
  Hlo convert(const Hlo& x, at::ScalarType dtype);
  Hlo bitcast(const Hlo& x, at::ScalarType dtype);

  Hlo reshape(const Hlo& x, Dims sizes);
  Hlo transpose(const Hlo& x, const Dims& permutation);
  /// Dimension i of x becomes dims[i] of the result.
  Hlo broadcast_in_dim(const Hlo& x, Dims sizes, const Dims& dims);
  /// Follows at::broadcast_to: aligns sizes at the right and repeats ones.
  Hlo expand(const Hlo& x, Dims sizes);
  Hlo slice(const Hlo& x, const Dims& start, const Dims& limit, const Dims& stride);
  Hlo pad(const Hlo& x, const Hlo& value, const Dims& low, const Dims& high, const Dims& interior);
  Hlo concatenate(const std::vector<Hlo>& parts, int64_t dim);
  Hlo reverse(const Hlo& x, const Dims& dims);

  /// By "add", "multiply", "maximum", "minimum", "and", "or"; the dimensions are gone.
  Hlo reduce(std::string_view name, const Hlo& x, const Hlo& init, const Dims& dims);
  /// Over all replicas of the program, each with a value of its own.
  Hlo all_reduce(std::string_view name, const Hlo& x, int64_t num_replicas);
  Hlo reduce_window(std::string_view name, const Hlo& x, const Hlo& init, const Window& window);
  /// The gradient of a maximum over windows: adds each source to where the greatest element is.
  Hlo select_and_scatter(const Hlo& x, const Hlo& source, const Window& window);
  /// Result: batch dimensions, then what is left of a, then of b.
  Hlo dot_general(const Hlo& a, const Hlo& b, const Dims& batch_a, const Dims& batch_b,
                  const Dims& contract_a, const Dims& contract_b);
  Hlo convolution(const Hlo& input, const Hlo& kernel, const ConvolutionWindow& window,
                  const ConvolutionLayout& layout, int64_t feature_groups = 1,
                  int64_t batch_groups = 1);
  Hlo gather(const Hlo& x, const Hlo& indices, const GatherDims& dims, Dims result_sizes);
  /// By "add", "maximum" and so on, or "" for the update alone.
  Hlo scatter(std::string_view name, const Hlo& x, const Hlo& indices, const Hlo& updates,
              const ScatterDims& dims, bool unique_indices = false);
  /// Sorts all operands into the stable order of the first.
  std::vector<Hlo> sort(const std::vector<Hlo>& operands, int64_t dim, bool descending);

  /// A value of that type from an operator that has no method here: operands and attributes as
  /// StableHLO's generic form writes them.
  Hlo call(std::string_view name, std::span<const Hlo> operands, std::string_view attributes,
           at::ScalarType dtype, Dims sizes, std::string_view region = "");

  /// A value that define_as_element() gives: known at the end only, used before.
  Hlo reserve(at::ScalarType dtype) { return make(dtype, {}); }
  /// Puts the output of `define` at the program's start.
  template <class Define>
  void at_start(const Define& define) {
    std::string after = std::exchange(body_, {});
    define();
    body_ += after;
  }
  /// The reserved value is the element of a vector.
  void define_as_element(const Hlo& reserved, const Hlo& vector, int64_t index);

  /// The whole module. Attributes of results as those of parameters; none where there are fewer.
  std::string finish(std::string_view name, const std::vector<Hlo>& results,
                     const std::vector<std::string>& result_attributes = {},
                     std::string_view module_attributes = "");

 private:
  struct Parameter {
    Hlo value;
    std::string attributes;
  };
  Hlo make(at::ScalarType dtype, Dims sizes);
  Hlo raw_constant(std::string_view text, at::ScalarType dtype, Dims sizes);
  std::string region_of(std::string_view name, at::ScalarType dtype);

  int64_t next_id_ = 0;
  std::vector<Parameter> parameters_;
  std::string body_;
};

}  // namespace levin::xla
