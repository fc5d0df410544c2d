// Arguments that lowerings do not support.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_map>

#include "levin/comm/collectives/named_group.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

using CallArguments = at::ArrayRef<c10::IValue>;

bool has_element_type(const at::Tensor& tensor) {
  return !tensor.defined() || !at::isComplexType(tensor.scalar_type());
}

bool is_index_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

/// x[mask] has as many elements as the mask has set ones.
bool has_no_mask(CallArguments in) {
  const auto indices = in[1].toOptionalTensorVector();
  return std::ranges::any_of(indices,
                             [](const auto& index) { return index && index->defined(); }) &&
         std::ranges::none_of(indices, [](const auto& index) {
           return index && index->defined() && is_index_mask(*index);
         });
}

/// x[mask] = value is a choice between both.
bool puts_by_place_or_one_value(CallArguments in) {
  if (has_no_mask(in)) return true;
  const auto indices = in[1].toOptionalTensorVector();
  return indices.size() == 1 && indices[0] && indices[0]->defined() &&
         in[2].toTensor().numel() == 1;
}

/// Searching compares each value with each bound.
bool is_small_search(CallArguments in) {
  constexpr int64_t kMostComparisons = int64_t{1} << 28U;
  const auto count = [](const c10::IValue& value) {
    return value.isTensor() ? value.toTensor().numel() : int64_t{1};
  };
  return count(in[0]) * count(in[1]) <= kMostComparisons;
}

/// Its text would be as long as the tensor.
bool is_small_triangle(CallArguments in) { return in[0].toInt() * in[1].toInt() <= 4096; }

/// Over some of the processes the host does it: programs know but all of them.
bool is_over_all(CallArguments in) { return comm::NamedGroup::in(in[1])->name() == "world"; }

using Conditions = std::unordered_map<const c10::FunctionSchema*, LowerCondition>;

Conditions make_conditions() {
  Conditions conditions;
  const auto add = [&](const char* name, const char* overload, LowerCondition condition) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    conditions.emplace(&op.schema(), condition);
  };
  add("aten::index", "Tensor", has_no_mask);
  add("aten::index_put", "", puts_by_place_or_one_value);
  add("aten::index_put_", "", puts_by_place_or_one_value);
  add("aten::_index_put_impl_", "", puts_by_place_or_one_value);
  add("aten::searchsorted", "Tensor", is_small_search);
  add("aten::searchsorted", "Scalar", is_small_search);
  add("aten::bucketize", "Tensor", is_small_search);
  add("aten::bucketize", "Scalar", is_small_search);
  add("aten::isin", "Tensor_Tensor", is_small_search);
  add("aten::tril_indices", "", is_small_triangle);
  add("aten::triu_indices", "", is_small_triangle);
  add("levin::all_reduce_", "", is_over_all);
  add("levin::broadcast_", "", is_over_all);
  return conditions;
}

/// A generator of the host's draws on the host.
bool takes_generator(const c10::IValue& value) { return value.isGenerator(); }

}  // namespace

bool can_lower(LowerCondition condition, at::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (takes_generator(argument)) return false;
    if (argument.isTensor() && !has_element_type(argument.toTensor())) return false;
  }
  return condition == nullptr || condition(arguments);
}

LowerCondition condition_of(const c10::OperatorHandle& op) {
  static const Conditions conditions = make_conditions();
  const auto condition = conditions.find(&op.schema());
  return condition == conditions.end() ? nullptr : condition->second;
}

}  // namespace levin::xla
