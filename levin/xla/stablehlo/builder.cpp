#include "levin/xla/stablehlo/builder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "levin/base/check.h"

namespace levin::xla {
namespace {

std::string joined(at::IntArrayRef numbers) { return fmt::format("{}", fmt::join(numbers, ", ")); }

std::string text_of(const Hlo& value) { return type_text(value.dtype, value.sizes); }

/// To the bit, as hexadecimal: what MLIR reads as the float's pattern.
std::string float_text(double number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(number));
    case at::kHalf:
      return fmt::format("0x{:04X}", c10::Half(static_cast<float>(number)).x);
    case at::kBFloat16:
      return fmt::format("0x{:04X}", c10::BFloat16(static_cast<float>(number)).x);
    default:
      return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(static_cast<float>(number)));
  }
}

std::string number_text(const at::Scalar& number, at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return float_text(number.toDouble(), dtype);
  if (dtype == at::kBool) return number.toBool() ? "true" : "false";
  if (dtype == at::kUInt64) return fmt::format("{}", number.to<uint64_t>());
  return fmt::format("{}", number.isFloatingPoint() ? static_cast<int64_t>(number.toDouble())
                                                    : number.to<int64_t>());
}

std::string padding_text(const Dims& low, const Dims& high) {
  std::string rows;
  for (size_t i = 0; i < low.size(); ++i) {
    rows += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", low[i], high[i]);
  }
  return fmt::format("dense<[{}]> : tensor<{}x2xi64>", rows, low.size());
}

int64_t dilated(int64_t size, int64_t dilation) {
  return size == 0 ? 0 : (size - 1) * dilation + 1;
}

/// How many places a window has.
int64_t num_places(int64_t size, int64_t window, int64_t stride) {
  return size < window ? 0 : (size - window) / stride + 1;
}

/// "[b, f, 0, 1]"
std::string layout_text(std::string_view front, int64_t num_spatial) {
  std::string text = fmt::format("[{}, {}", front[0], front[1]);
  for (int64_t i = 0; i < num_spatial; ++i) text += fmt::format(", {}", i);
  return text + "]";
}

std::string window_text(const Window& window) {
  return fmt::format(
      "window_dimensions = {}, window_strides = {}, base_dilations = {}, window_dilations = {}, "
      "padding = {}",
      array_text(window.sizes), array_text(window.stride), array_text(window.base_dilation),
      array_text(window.dilation), padding_text(window.pad_low, window.pad_high));
}

}  // namespace

int64_t Hlo::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string_view element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kBool:
      return "i1";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "ui8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kUInt32:
      return "ui32";
    case at::kUInt64:
      return "ui64";
    default:
      LEVIN_FAIL("xla.dtype",
                 "a tensor of {}, which XLA programs of levin do not have; wanted a "
                 "float of 16, 32 or 64 bits, an integer or bool",
                 c10::toString(dtype));
  }
}

std::string type_text(at::ScalarType dtype, at::IntArrayRef sizes) {
  std::string text = "tensor<";
  for (const int64_t size : sizes) fmt::format_to(std::back_inserter(text), "{}x", size);
  return text.append(element_type(dtype)).append(">");
}

std::string array_text(at::IntArrayRef numbers) {
  return numbers.empty() ? "array<i64>" : fmt::format("array<i64: {}>", joined(numbers));
}

Hlo Builder::make(at::ScalarType dtype, Dims sizes) {
  return {.id = next_id_++, .dtype = dtype, .sizes = std::move(sizes)};
}

Hlo Builder::parameter(at::ScalarType dtype, Dims sizes, std::string attributes) {
  parameters_.push_back({make(dtype, std::move(sizes)), std::move(attributes)});
  return parameters_.back().value;
}

void Builder::set_attributes(const Hlo& parameter, std::string attributes) {
  std::ranges::find(parameters_, parameter.id, [](const auto& p) {
    return p.value.id;
  })->attributes = std::move(attributes);
}

Hlo Builder::call(std::string_view name, std::span<const Hlo> operands, std::string_view attributes,
                  at::ScalarType dtype, Dims sizes, std::string_view region) {
  Hlo result = make(dtype, std::move(sizes));
  auto out = std::back_inserter(body_);
  const std::string_view dialect = name.find('.') == std::string_view::npos ? "stablehlo." : "";
  fmt::format_to(out, "  %{} = \"{}{}\"(", result.id, dialect, name);
  for (size_t i = 0; i < operands.size(); ++i) {
    fmt::format_to(out, "{}%{}", i == 0 ? "" : ", ", operands[i].id);
  }
  fmt::format_to(out, "){}", region);
  if (!attributes.empty()) fmt::format_to(out, " {{{}}}", attributes);
  body_ += " : (";
  for (size_t i = 0; i < operands.size(); ++i) {
    fmt::format_to(out, "{}{}", i == 0 ? "" : ", ", text_of(operands[i]));
  }
  fmt::format_to(out, ") -> {}\n", text_of(result));
  return result;
}

Hlo Builder::raw_constant(std::string_view text, at::ScalarType dtype, Dims sizes) {
  const std::string value = fmt::format("value = dense<{}> : {}", text, type_text(dtype, sizes));
  return call("constant", {}, value, dtype, std::move(sizes));
}

Hlo Builder::constant(const at::Scalar& number, at::ScalarType dtype, Dims sizes) {
  return raw_constant(number_text(number, dtype), dtype, std::move(sizes));
}

Hlo Builder::infinity(at::ScalarType dtype, bool is_negative) {
  const double infinite = std::numeric_limits<double>::infinity();
  return constant(is_negative ? -infinite : infinite, dtype);
}

Hlo Builder::lowest(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return infinity(dtype, /*is_negative=*/true);
  if (dtype == at::kBool) return constant(false, dtype);
  return AT_DISPATCH_INTEGRAL_TYPES(dtype, "lowest", [&] {
    return constant(static_cast<int64_t>(std::numeric_limits<scalar_t>::lowest()), dtype);
  });
}

Hlo Builder::highest(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return infinity(dtype, /*is_negative=*/false);
  if (dtype == at::kBool) return constant(true, dtype);
  return AT_DISPATCH_INTEGRAL_TYPES(dtype, "highest", [&] {
    return constant(static_cast<int64_t>(std::numeric_limits<scalar_t>::max()), dtype);
  });
}

Hlo Builder::literal(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().cpu().contiguous().view(-1);
  const auto element = [&](int64_t i) { return number_text(flat[i].item(), flat.scalar_type()); };
  std::string elements;
  for (int64_t i = 0; i < flat.numel(); ++i) elements += (i == 0 ? "" : ", ") + element(i);
  const Hlo row = raw_constant("[" + elements + "]", flat.scalar_type(), {flat.numel()});
  return reshape(row, tensor.sizes().vec());
}

Hlo Builder::iota(at::ScalarType dtype, Dims sizes, int64_t dim) {
  return call("iota", {}, fmt::format("iota_dimension = {} : i64", dim), dtype, std::move(sizes));
}

Hlo Builder::unary(std::string_view name, const Hlo& x) {
  return call(name, {{x}}, "", x.dtype, x.sizes);
}

Hlo Builder::binary(std::string_view name, const Hlo& a, const Hlo& b) {
  TORCH_INTERNAL_ASSERT(a.sizes == b.sizes && a.dtype == b.dtype, name, " of ", text_of(a), ", ",
                        text_of(b));
  return call(name, {{a, b}}, "", a.dtype, a.sizes);
}

Hlo Builder::compare(std::string_view direction, const Hlo& a, const Hlo& b) {
  TORCH_INTERNAL_ASSERT(a.sizes == b.sizes && a.dtype == b.dtype);
  return call("compare", {{a, b}},
              fmt::format("comparison_direction = #stablehlo<comparison_direction {}>", direction),
              at::kBool, a.sizes);
}

Hlo Builder::select(const Hlo& condition, const Hlo& yes, const Hlo& no) {
  TORCH_INTERNAL_ASSERT(condition.sizes == yes.sizes && yes.sizes == no.sizes &&
                        yes.dtype == no.dtype);
  return call("select", {{condition, yes, no}}, "", yes.dtype, yes.sizes);
}

Hlo Builder::convert(const Hlo& x, at::ScalarType dtype) {
  if (x.dtype == dtype) return x;
  if (dtype == at::kBool) {  // as ATen has it: all but 0 is true
    return compare("NE", x, constant(0, x.dtype, x.sizes));
  }
  return call("convert", {{x}}, "", dtype, x.sizes);
}

Hlo Builder::bitcast(const Hlo& x, at::ScalarType dtype) {
  return call("bitcast_convert", {{x}}, "", dtype, x.sizes);
}

Hlo Builder::reshape(const Hlo& x, Dims sizes) {
  if (x.sizes == sizes) return x;
  return call("reshape", {{x}}, "", x.dtype, std::move(sizes));
}

Hlo Builder::transpose(const Hlo& x, const Dims& permutation) {
  if (std::ranges::is_sorted(permutation)) return x;
  Dims sizes;
  for (const int64_t dim : permutation) sizes.push_back(x.sizes[dim]);
  return call("transpose", {{x}}, "permutation = " + array_text(permutation), x.dtype,
              std::move(sizes));
}

Hlo Builder::broadcast_in_dim(const Hlo& x, Dims sizes, const Dims& dims) {
  return call("broadcast_in_dim", {{x}}, "broadcast_dimensions = " + array_text(dims), x.dtype,
              std::move(sizes));
}

Hlo Builder::expand(const Hlo& x, Dims sizes) {
  if (x.sizes == sizes) return x;
  Dims dims(x.sizes.size());
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(sizes.size()) - x.rank());
  return broadcast_in_dim(x, std::move(sizes), dims);
}

Hlo Builder::slice(const Hlo& x, const Dims& start, const Dims& limit, const Dims& stride) {
  Dims sizes;
  for (size_t i = 0; i < start.size(); ++i) {
    sizes.push_back(std::max<int64_t>(0, (limit[i] - start[i] + stride[i] - 1) / stride[i]));
  }
  if (sizes == x.sizes) return x;
  return call("slice", {{x}},
              fmt::format("start_indices = {}, limit_indices = {}, strides = {}", array_text(start),
                          array_text(limit), array_text(stride)),
              x.dtype, std::move(sizes));
}

Hlo Builder::pad(const Hlo& x, const Hlo& value, const Dims& low, const Dims& high,
                 const Dims& interior) {
  Dims sizes;
  for (size_t i = 0; i < low.size(); ++i) {
    sizes.push_back(x.sizes[i] + low[i] + high[i] +
                    interior[i] * std::max<int64_t>(0, x.sizes[i] - 1));
  }
  return call("pad", {{x, value}},
              fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                          array_text(low), array_text(high), array_text(interior)),
              x.dtype, std::move(sizes));
}

Hlo Builder::concatenate(const std::vector<Hlo>& parts, int64_t dim) {
  Dims sizes = parts.front().sizes;
  sizes[dim] = 0;
  for (const Hlo& part : parts) sizes[dim] += part.sizes[dim];
  return call("concatenate", parts, fmt::format("dimension = {} : i64", dim), parts.front().dtype,
              std::move(sizes));
}

Hlo Builder::reverse(const Hlo& x, const Dims& dims) {
  return call("reverse", {{x}}, "dimensions = " + array_text(dims), x.dtype, x.sizes);
}

/// Of two scalars; "" gives the second of them.
std::string Builder::region_of(std::string_view name, at::ScalarType dtype) {
  const std::string type = type_text(dtype, {});
  const int64_t a = next_id_++;
  const int64_t b = next_id_++;
  std::string text = fmt::format(" ({{\n  ^bb0(%{}: {}, %{}: {}):\n", a, type, b, type);
  int64_t result = b;
  if (!name.empty()) {
    result = next_id_++;
    text += fmt::format("    %{} = \"stablehlo.{}\"(%{}, %{}) : ({}, {}) -> {}\n", result, name, a,
                        b, type, type, type);
  }
  return text + fmt::format("    \"stablehlo.return\"(%{}) : ({}) -> ()\n  }})", result, type);
}

Hlo Builder::reduce(std::string_view name, const Hlo& x, const Hlo& init, const Dims& dims) {
  if (dims.empty()) return x;
  Dims sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (std::ranges::find(dims, i) == dims.end()) sizes.push_back(x.sizes[i]);
  }
  const std::string region = region_of(name, x.dtype);
  return call("reduce", {{x, init}}, "dimensions = " + array_text(dims), x.dtype, std::move(sizes),
              region);
}

Hlo Builder::all_reduce(std::string_view name, const Hlo& x, int64_t num_replicas) {
  std::string replicas;
  for (int64_t i = 0; i < num_replicas; ++i) replicas += fmt::format("{}{}", i == 0 ? "" : ", ", i);
  const std::string region = region_of(name, x.dtype);
  return call(
      "all_reduce", {{x}},
      fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", replicas, num_replicas),
      x.dtype, x.sizes, region);
}

Hlo Builder::reduce_window(std::string_view name, const Hlo& x, const Hlo& init,
                           const Window& window) {
  Dims sizes;
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    const int64_t padded =
        dilated(x.sizes[i], window.base_dilation[i]) + window.pad_low[i] + window.pad_high[i];
    sizes.push_back(
        num_places(padded, dilated(window.sizes[i], window.dilation[i]), window.stride[i]));
  }
  const std::string region = region_of(name, x.dtype);
  return call("reduce_window", {{x, init}}, window_text(window), x.dtype, std::move(sizes), region);
}

Hlo Builder::select_and_scatter(const Hlo& x, const Hlo& source, const Window& window) {
  const std::string type = type_text(x.dtype, {});
  const int64_t a = next_id_++;
  const int64_t b = next_id_++;
  const int64_t greater = next_id_++;
  const std::string choose = fmt::format(
      " ({{\n  ^bb0(%{0}: {3}, %{1}: {3}):\n    %{2} = \"stablehlo.compare\"(%{0}, %{1}) "
      "{{comparison_direction = #stablehlo<comparison_direction GE>}} : ({3}, {3}) -> "
      "tensor<i1>\n    \"stablehlo.return\"(%{2}) : (tensor<i1>) -> ()\n  }},",
      a, b, greater, type);
  std::string add = region_of("add", x.dtype);
  add.erase(0, add.find('{'));
  const Hlo zero = constant(0, x.dtype);
  return call("select_and_scatter", {{x, source, zero}},
              fmt::format("window_dimensions = {}, window_strides = {}, padding = {}",
                          array_text(window.sizes), array_text(window.stride),
                          padding_text(window.pad_low, window.pad_high)),
              x.dtype, x.sizes, choose + " " + add);
}

Hlo Builder::dot_general(const Hlo& a, const Hlo& b, const Dims& batch_a, const Dims& batch_b,
                         const Dims& contract_a, const Dims& contract_b) {
  Dims sizes;
  for (const int64_t dim : batch_a) sizes.push_back(a.sizes[dim]);
  const auto add_free = [&](const Hlo& x, const Dims& batch, const Dims& contract) {
    for (int64_t i = 0; i < x.rank(); ++i) {
      const bool is_free = std::ranges::find(batch, i) == batch.end() &&
                           std::ranges::find(contract, i) == contract.end();
      if (is_free) sizes.push_back(x.sizes[i]);
    }
  };
  add_free(a, batch_a, contract_a);
  add_free(b, batch_b, contract_b);
  return call("dot_general", {{a, b}},
              fmt::format("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], "
                          "rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], "
                          "rhs_contracting_dimensions = [{}]>",
                          joined(batch_a), joined(batch_b), joined(contract_a), joined(contract_b)),
              a.dtype, std::move(sizes));
}

Hlo Builder::convolution(const Hlo& input, const Hlo& kernel, const ConvolutionWindow& window,
                         const ConvolutionLayout& layout, int64_t feature_groups,
                         int64_t batch_groups) {
  const int64_t num_spatial = input.rank() - 2;
  Dims sizes(input.sizes.size());
  const size_t batch = layout.output.find('b');
  sizes[batch] = input.sizes[layout.input.find('b')] / batch_groups;
  sizes[1 - batch] = kernel.sizes[layout.kernel.find('o')];
  for (int64_t i = 0; i < num_spatial; ++i) {
    const int64_t padded = dilated(input.sizes[i + 2], window.lhs_dilation[i]) + window.pad_low[i] +
                           window.pad_high[i];
    sizes[i + 2] =
        num_places(padded, dilated(kernel.sizes[i + 2], window.rhs_dilation[i]), window.stride[i]);
  }
  return call(
      "convolution", {{input, kernel}},
      fmt::format("window_strides = {}, padding = {}, lhs_dilation = {}, rhs_dilation = {}, "
                  "dimension_numbers = #stablehlo.conv<{}x{}->{}>, feature_group_count = {} : i64, "
                  "batch_group_count = {} : i64",
                  array_text(window.stride), padding_text(window.pad_low, window.pad_high),
                  array_text(window.lhs_dilation), array_text(window.rhs_dilation),
                  layout_text(layout.input, num_spatial), layout_text(layout.kernel, num_spatial),
                  layout_text(layout.output, num_spatial), feature_groups, batch_groups),
      input.dtype, std::move(sizes));
}

Hlo Builder::gather(const Hlo& x, const Hlo& indices, const GatherDims& dims, Dims result_sizes) {
  return call("gather", {{x, indices}},
              fmt::format("dimension_numbers = #stablehlo.gather<offset_dims = [{}], "
                          "collapsed_slice_dims = [{}], start_index_map = [{}], index_vector_dim "
                          "= {}>, slice_sizes = {}, indices_are_sorted = false",
                          joined(dims.offset), joined(dims.collapsed), joined(dims.start_index_map),
                          dims.index_vector_dim, array_text(dims.slice_sizes)),
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
                  joined(dims.update_window), joined(dims.inserted_window),
                  joined(dims.scatter_dims_to_operand), dims.index_vector_dim, unique_indices),
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
    types += (types.empty() ? "" : ", ") + text_of(operand);
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
                   i, text_of(operands[i]), text_of(operands[i]));
  }
  return results;
}

void Builder::define_as_element(const Hlo& reserved, const Hlo& vector, int64_t index) {
  const Hlo element = slice(vector, {index}, {index + 1}, {1});
  fmt::format_to(std::back_inserter(body_), "  %{} = \"stablehlo.reshape\"(%{}) : ({}) -> {}\n",
                 reserved.id, element.id, text_of(element), text_of(reserved));
}

std::string Builder::finish(std::string_view name, const std::vector<Hlo>& results,
                            const std::vector<std::string>& result_attributes,
                            std::string_view module_attributes) {
  std::string text = fmt::format("module @{}", name);
  auto out = std::back_inserter(text);
  if (!module_attributes.empty()) fmt::format_to(out, " attributes {{{}}}", module_attributes);
  text += " {\n func.func public @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [value, attributes] = parameters_[i];
    fmt::format_to(out, "{}%{}: {}", i == 0 ? "" : ", ", value.id, text_of(value));
    if (!attributes.empty()) fmt::format_to(out, " {{{}}}", attributes);
  }
  text += ") -> (";
  std::string names;
  std::string types;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string type = text_of(results[i]);
    const char* comma = i == 0 ? "" : ", ";
    fmt::format_to(out, "{}{}", comma, type);
    if (i < result_attributes.size() && !result_attributes[i].empty()) {
      fmt::format_to(out, " {{{}}}", result_attributes[i]);
    }
    names += fmt::format("{}%{}", comma, results[i].id);
    types += comma + type;
  }
  text += ") {\n";
  text += body_;
  if (results.empty()) {
    text += "  return\n }\n}\n";
  } else {
    fmt::format_to(out, "  return {} : {}\n }}\n}}\n", names, types);
  }
  return text;
}

}  // namespace levin::xla
