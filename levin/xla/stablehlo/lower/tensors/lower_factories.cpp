// Tensors made of numbers alone.
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>

#include <optional>

#include "levin/graph/values.h"
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// Memory that nobody has written holds zeros.
void lower_empty(Lowering& at) { at.give(at.hlo.constant(0, at.dtype())); }
void lower_ones(Lowering& at) { at.give(at.hlo.constant(1, at.dtype())); }

/// fill(self, value)
void lower_fill(Lowering& at) {
  at.give(at.hlo.expand(at.hlo.reshape(at.tensor(1, at.dtype()), {}), at.sizes()));
}

/// The dtype that a range is computed in, whatever its own dtype is.
at::ScalarType wide_dtype(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? at::kDouble : at::kLong;
}

/// Arguments: end; start, end; start, end, step.
LowerFunction range_from(std::optional<size_t> start, std::optional<size_t> step) {
  return [=](Lowering& at) {
    const at::ScalarType in = wide_dtype(at.dtype());
    const Term place(at.hlo, at.hlo.iota(in, at.sizes(), 0));
    const auto number = [&](std::optional<size_t> index, const at::Scalar& otherwise) {
      const at::Scalar value =
          index ? graph::constant_of(at.node.arguments()[*index])->toScalar() : otherwise;
      return Term(at.hlo, at.hlo.expand(at.hlo.constant(value, in), at.sizes()));
    };
    at.give(number(start, 0) + place * number(step, 1));
  };
}

/// Both ends to the bit: the second half counts from the end.
Term spaced(Lowering& at) {
  const Dims sizes = at.sizes();
  const int64_t count = sizes[0];
  const Term place(at.hlo, at.hlo.iota(at::kDouble, sizes, 0));
  const double start = at.number(0);
  const double end = at.number(1);
  if (count < 2) return place.number(start);
  const double step = (end - start) / static_cast<double>(count - 1);
  const int64_t half = count / 2;
  return where(place < static_cast<double>(half), start + place * step,
               end - (static_cast<double>(count - 1) - place) * step);
}

void lower_linspace(Lowering& at) { at.give(spaced(at)); }

void lower_logspace(Lowering& at) {
  const Term exponent = spaced(at);
  at.give(exponent.number(at.number(3)).binary("power", exponent));
}

void lower_eye(Lowering& at) {
  const Dims sizes = at.sizes();
  at.give(at.hlo.compare("EQ", at.hlo.iota(at::kInt, sizes, 0), at.hlo.iota(at::kInt, sizes, 1)));
}

LowerFunction triangle_indices(bool is_lower) {
  return [is_lower](Lowering& at) {
    const auto options = at::TensorOptions(at::kLong);
    const at::Tensor indices =
        is_lower ? at::tril_indices(at.integer(0), at.integer(1), at.integer(2), options)
                 : at::triu_indices(at.integer(0), at.integer(1), at.integer(2), options);
    at.give(indices.numel() == 0 ? at.hlo.constant(0, at::kLong, at.sizes())
                                 : at.hlo.literal(indices));
  };
}

}  // namespace

void add_factories(LoweringTable& table) {
  for (const std::string_view name :
       {"aten::empty.memory_format", "aten::empty_strided", "aten::new_empty_strided",
        "aten::zeros", "aten::zero", "aten::zeros_like"}) {
    table[name] = lower_empty;
  }
  table["aten::ones_like"] = lower_ones;
  table["aten::fill.Scalar"] = table["aten::fill.Tensor"] = lower_fill;
  table["aten::arange"] = range_from(std::nullopt, std::nullopt);
  table["aten::arange.start"] = range_from(0, std::nullopt);
  table["aten::arange.start_step"] = range_from(0, 2);
  table["aten::arange.start_out"] = range_from(0, 2);
  table["aten::linspace"] = lower_linspace;
  table["aten::logspace"] = lower_logspace;
  table["aten::eye"] = table["aten::eye.m"] = lower_eye;
  table["aten::tril_indices"] = triangle_indices(true);
  table["aten::triu_indices"] = triangle_indices(false);
}

}  // namespace levin::xla
