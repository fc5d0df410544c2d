// Graph::call_function: an operator found by its name, its arguments as the schema wants them.
#include <ATen/ScalarOps.h>
#include <ATen/core/ivalue.h>

#include "levin/base/check.h"
#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

c10::OperatorHandle find_operator(std::string_view target) {
  const size_t dot = target.find('.');
  const std::string name(target.substr(0, dot));
  const std::string overload(dot == std::string_view::npos ? "" : target.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  LEVIN_CHECK(op.has_value(), "graph.operator",
              "got {}, wanted the name of an operator with its overload, like aten::add.Tensor",
              target);
  return *op;
}

bool is_tensor_type(const c10::Type& type) {
  return type.isSubtypeOf(*c10::OptionalType::ofTensor());
}

/// Numbers become what the schema calls for: floats, and tensors as `x * 2` makes one of the 2.
Argument as_parameter(const c10::Argument& parameter, Argument argument) {
  const c10::IValue* constant = constant_of(argument);
  if (constant == nullptr || !constant->isScalar()) return argument;
  const c10::Type& type = *parameter.type();
  if (is_tensor_type(type)) {
    at::Tensor wrapped = c10::scalar_to_tensor(constant->toScalar());
    wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
    return Argument(c10::IValue(std::move(wrapped)));
  }
  const bool wants_float = type.isSubtypeOf(*c10::OptionalType::create(c10::FloatType::get()));
  if (constant->isInt() && wants_float) return static_cast<double>(constant->toInt());
  return argument;
}

}  // namespace

Node& Graph::call_function(std::string_view target, std::vector<Argument> arguments,
                           const std::map<std::string, Argument>& named, size_t num_results) {
  const OperatorInfo& info = info_of(find_operator(target));
  const auto& parameters = info.parameters();
  LEVIN_CHECK(arguments.size() <= parameters.size(), "graph.operator",
              "got {} arguments for {}, wanted at most {}", arguments.size(), target,
              parameters.size());
  size_t num_named = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const c10::Argument& parameter = parameters[i];
    if (i >= arguments.size()) {
      const auto given = named.find(parameter.name());
      const bool is_given = given != named.end();
      num_named += is_given ? 1 : 0;
      LEVIN_CHECK(is_given || parameter.default_value(), "graph.operator",
                  "got {} without its argument {}, which has no default", target, parameter.name());
      arguments.push_back(is_given ? given->second : Argument(*parameter.default_value()));
    }
    arguments[i] = as_parameter(parameter, std::move(arguments[i]));
  }
  LEVIN_CHECK(num_named == named.size(), "graph.operator",
              "got {} of {} named arguments that {} does not have; its schema is {}",
              named.size() - num_named, named.size(), target, c10::toString(info.op.schema()));
  if (info.is_random) arguments.emplace_back(random_state());

  std::vector<ValueType> types;
  for (size_t i = 0; i < info.is_result.size(); ++i) {
    if (!info.is_result[i]) continue;
    const c10::Type& type = *info.op.schema().returns()[i].type();
    const bool is_list = type.isSubtypeOf(*c10::ListType::ofTensors());
    const bool is_host = !is_list && !is_tensor_type(type);
    types.resize(types.size() + (is_list ? num_results : 1),
                 {.kind = is_host ? ValueKind::kHost : ValueKind::kTensor});
  }
  for (const size_t index : info.written) {
    for_each_value(arguments[index], [&](Value& value) { types.push_back(value.type()); });
  }
  Node& node = insert_call(info, arguments, types.size() + (info.is_random ? 1 : 0));
  for (size_t i = 0; i < types.size(); ++i) node.outputs_[i]->type_ = std::move(types[i]);
  if (info.is_random) thread_random_state(node);
  return node;
}

}  // namespace levin::graph
