#include "levin/xla/stablehlo/builder.h"

#include <ATen/Dispatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <numeric>

namespace levin::xla {
namespace {

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

}  // namespace

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
    fmt::format_to(out, "{}{}", i == 0 ? "" : ", ", type_text(operands[i]));
  }
  fmt::format_to(out, ") -> {}\n", type_text(result));
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
  TORCH_INTERNAL_ASSERT(a.sizes == b.sizes && a.dtype == b.dtype, name, " of ", type_text(a), ", ",
                        type_text(b));
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

void Builder::define_as_element(const Hlo& reserved, const Hlo& vector, int64_t index) {
  const Hlo element = slice(vector, {index}, {index + 1}, {1});
  fmt::format_to(std::back_inserter(body_), "  %{} = \"stablehlo.reshape\"(%{}) : ({}) -> {}\n",
                 reserved.id, element.id, type_text(element), type_text(reserved));
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
    fmt::format_to(out, "{}%{}: {}", i == 0 ? "" : ", ", value.id, type_text(value));
    if (!attributes.empty()) fmt::format_to(out, " {{{}}}", attributes);
  }
  text += ") -> (";
  std::string names;
  std::string types;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string type = type_text(results[i]);
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
