#include "levin/xla/stablehlo/lower/lowering.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <numeric>

#include "levin/base/check.h"
#include "levin/graph/values.h"

namespace levin::xla {

using graph::Value;

const c10::IValue& Lowering::constant(size_t index) const {
  const c10::IValue* value = graph::constant_of(node.arguments().at(index));
  TORCH_INTERNAL_ASSERT(value != nullptr, node.target(), ": argument ", index, " is a tensor");
  return *value;
}

const c10::IValue& Lowering::fixed(size_t index) const {
  state_.depend_on(index);
  return constant(index);
}

bool Lowering::has(size_t index) const {
  const c10::IValue* value = graph::constant_of(node.arguments().at(index));
  return value == nullptr || !value->isNone();
}

Hlo Lowering::tensor(size_t index) {
  const graph::Argument& argument = node.arguments().at(index);
  if (Value* const* value = std::get_if<Value*>(&argument)) return state_.value_of(**value);
  const c10::IValue& number = constant(index);
  const auto dtype = number.isTensor() ? number.toTensor().scalar_type() : number.toScalar().type();
  return number_like(index, dtype);
}

Hlo Lowering::tensor(size_t index, at::ScalarType dtype) {
  const graph::Argument& argument = node.arguments().at(index);
  if (graph::constant_of(argument) != nullptr) return number_like(index, dtype);
  return tensor_of(*std::get<Value*>(argument), dtype);
}

Hlo Lowering::tensor_of(const Value& value, at::ScalarType dtype) {
  if (const auto number = state_.number_of(value, dtype)) return *number;
  return hlo.convert(state_.value_of(value), dtype);
}

std::vector<Hlo> Lowering::tensors(size_t index) {
  std::vector<Hlo> values;
  for (const std::optional<Hlo>& value : optional_tensors(index)) values.push_back(value.value());
  return values;
}

std::vector<std::optional<Hlo>> Lowering::optional_tensors(size_t index) {
  std::vector<std::optional<Hlo>> values;
  const graph::Argument& argument = node.arguments().at(index);
  if (const auto* list = std::get_if<graph::Values>(&argument)) {
    for (Value* value : *list) {
      values.push_back(value == nullptr ? std::nullopt : std::optional(state_.value_of(*value)));
    }
  }
  return values;
}

Hlo Lowering::scalar(size_t index, at::ScalarType dtype) { return number_like(index, dtype); }

/// Writes common numbers into the program and gives others to each run, so that a learning rate
/// that changes needs no other program.
Hlo Lowering::number_like(size_t index, at::ScalarType dtype) {
  const c10::IValue& value = constant(index);
  const at::Scalar number = value.isTensor() ? value.toTensor().item() : value.toScalar();
  if (at::isFloatingType(dtype)) return runtime(number.toDouble(), dtype, index);
  state_.depend_on(index);
  return hlo.constant(number, dtype);
}

Hlo Lowering::runtime(double number, at::ScalarType dtype, std::optional<size_t> argument) {
  const bool is_plain = number == 0 || number == 1 || number == -1 || number == 2;
  if (is_plain) {
    if (argument) state_.depend_on(*argument);
    return hlo.constant(number, dtype);
  }
  const auto given = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return hlo.convert(state_.runtime_number(number, given, argument), dtype);
}

at::ScalarType Lowering::promoted(std::initializer_list<size_t> arguments) const {
  std::vector<at::Tensor> samples;
  for (const size_t index : arguments) {
    const graph::Argument& argument = node.arguments().at(index);
    if (Value* const* value = std::get_if<Value*>(&argument)) {
      const graph::ValueType& type = (*value)->type();
      const Dims sizes(type.sizes.size(), 1);
      samples.push_back(at::empty(sizes, at::TensorOptions(type.dtype)));
    } else if (constant(index).isTensor()) {
      samples.push_back(constant(index).toTensor());
    } else {
      samples.push_back(at::scalar_tensor(constant(index).toScalar(), at::kDouble));
      const bool is_integral = constant(index).toScalar().isIntegral(/*includeBool=*/false);
      if (is_integral) samples.back() = samples.back().to(at::kLong);
      if (constant(index).isBool()) samples.back() = samples.back().to(at::kBool);
      samples.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
  return at::native::result_type(samples);
}

double Lowering::number(size_t index) const { return fixed(index).toScalar().toDouble(); }
bool Lowering::is_one(size_t index) const {
  if (constant(index).toScalar().toDouble() != 1) return false;
  state_.depend_on(index);
  return true;
}
int64_t Lowering::integer(size_t index) const { return fixed(index).toInt(); }
int64_t Lowering::integer(size_t index, int64_t otherwise) const {
  return has(index) ? integer(index) : otherwise;
}
bool Lowering::flag(size_t index) const { return fixed(index).toBool(); }

Dims Lowering::list(size_t index) const {
  const c10::IValue& value = fixed(index);
  if (value.isNone()) return {};
  return value.isInt() ? Dims{value.toInt()} : value.toIntVector();
}

std::string_view Lowering::text(size_t index) const { return fixed(index).toStringView(); }

int64_t Lowering::dim(size_t index, int64_t rank) const {
  return at::maybe_wrap_dim(integer(index), rank);
}

Dims Lowering::dims(size_t index, int64_t rank) const {
  Dims found = list(index);
  if (found.empty()) {
    found.resize(rank);
    std::iota(found.begin(), found.end(), 0);
  }
  if (rank == 0) return {};
  for (int64_t& dim : found) dim = at::maybe_wrap_dim(dim, rank);
  std::ranges::sort(found);
  return found;
}

const graph::ValueType& Lowering::type(size_t result) const { return node.output(result).type(); }

bool Lowering::wants(size_t result) const {
  return result < results_.size() && type(result).kind == graph::ValueKind::kTensor;
}

Dims Lowering::sizes(size_t result) const {
  const at::DimVector& sizes = type(result).sizes;
  return {sizes.begin(), sizes.end()};
}

void Lowering::give(size_t result, const Hlo& value) {
  if (!wants(result)) return;
  Hlo given = hlo.convert(value, dtype(result));
  if (given.sizes != sizes(result)) {
    const bool may_expand =
        given.rank() <= static_cast<int64_t>(sizes(result).size()) &&
        (given.numel() == 1 || at::is_expandable_to(given.sizes, sizes(result)));
    TORCH_INTERNAL_ASSERT(may_expand, node.target(), " gives ", given.sizes, ", wanted ",
                          sizes(result));
    given = hlo.expand(given.numel() == 1 ? hlo.reshape(given, {}) : given, sizes(result));
  }
  results_[result] = given;
}

at::ScalarType Lowering::compute_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

Hlo Lowering::like(const at::Scalar& number, const Hlo& other) {
  return hlo.expand(hlo.constant(number, other.dtype), other.sizes);
}

Hlo Lowering::keep_dims(const Hlo& reduced, const Hlo& whole, const Dims& dims) {
  Dims kept = whole.sizes;
  for (const int64_t dim : dims) kept[dim] = 1;
  return hlo.reshape(reduced, kept);
}

Hlo Lowering::sum(const Hlo& x, const Dims& dims, bool keepdim) {
  const Hlo reduced = hlo.reduce("add", x, hlo.constant(0, x.dtype), dims);
  return keepdim ? keep_dims(reduced, x, dims) : reduced;
}

Hlo Lowering::maximum(const Hlo& x, const Dims& dims, bool keepdim) {
  const Hlo reduced = hlo.reduce("maximum", x, hlo.lowest(x.dtype), dims);
  return keepdim ? keep_dims(reduced, x, dims) : reduced;
}

}  // namespace levin::xla
