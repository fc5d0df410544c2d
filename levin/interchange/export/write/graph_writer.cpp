#include "levin/interchange/export/write/graph_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/record/current_place.h"
#include "levin/interchange/export/write/exported_constant.h"

namespace levin::interchange {

using nlohmann::json;
using Origin = RecordedValue::Origin;

namespace {

json tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

/// A name of Python's: letters, digits and underscores.
std::string identifier(std::string name) {
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

/// "aten::add.Tensor" is torch.ops.aten.add.Tensor, "aten::relu" is torch.ops.aten.relu.default. Python's
/// arithmetic with numbers is that of tensors, which takes numbers too, and what reads programs knows it so.
std::string target_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  std::string target = name.name, overload = name.overload_name;
  for (const char* arithmetic : {"add", "sub", "mul", "div"}) {
    const std::string own = std::string("aten::") + arithmetic;
    if (target != own && target != own + "_") continue;
    if (overload.starts_with("Scalar")) overload.replace(0, std::strlen("Scalar"), "Tensor");
  }
  target.replace(target.find("::"), 2, ".");
  return fmt::format("torch.ops.{}.{}", target, overload.empty() ? "default" : overload);
}

template <class Visit>
void for_each_value(const RecordedCall& call, const Visit& visit) {
  for (const RecordedArgument& argument : call.arguments) {
    for (const ValueId id : argument.values) {
      if (id != kNoValue) visit(id);
    }
  }
}

}  // namespace

std::vector<bool> used_calls(const Recording& recording) {
  const std::vector<ValueId> roots = roots_of(recording);
  std::vector<bool> is_needed(recording.values.size());
  const auto need = [&](ValueId id) { is_needed[id] = is_needed[roots[id]] = true; };
  for (ValueId id = 0; id < roots.size(); ++id) {
    if (recording.values[id].origin != Origin::kResult) is_needed[id] = true;
  }
  for (const RecordedArgument& output : recording.outputs) {
    for (const ValueId id : output.values) need(id);
  }
  std::vector<bool> is_used(recording.calls.size());
  for (size_t i = recording.calls.size(); i-- > 0;) {
    const RecordedCall& call = recording.calls[i];
    const auto& formals = call.op.schema().arguments();
    bool counts = call.op.hasTag(at::Tag::nondeterministic_seeded) || formals.empty();
    for (size_t j = 0; j < formals.size(); ++j) {
      if (!graph::is_written(formals[j]) && !is_written_unsaid(formals[j])) continue;
      for (const ValueId id : call.arguments[j].values) {
        counts |= id != kNoValue && is_needed[roots[id]];
      }
    }
    for (const RecordedResult& result : call.results) {
      for (const ValueId id : result.values) counts |= id != kNoValue && is_needed[id];
    }
    is_used[i] = counts;
    if (counts) for_each_value(call, need);
  }
  return is_used;
}

GraphWriter::GraphWriter(const Recordings& recordings, const ProgramParts& parts)
    : recordings_(recordings),
      first_(recordings.each.front()),
      parts_(parts),
      is_used_(used_calls(first_)),
      formulas_(recordings, parts.symbols, is_used_),
      stack_(parts.module, parts.tensors, first_) {
  constexpr size_t kForever = static_cast<size_t>(-1);
  last_use_.assign(first_.values.size(), 0);
  std::vector<std::vector<void*>> frames;
  for (size_t i = 0; i < first_.calls.size(); ++i) {
    frames.push_back(first_.calls[i].frames);
    if (is_used_[i]) for_each_value(first_.calls[i], [&](ValueId id) { last_use_[id] = i; });
  }
  for (const RecordedArgument& output : first_.outputs) {
    for (const ValueId id : output.values) last_use_[id] = kForever;
  }
  sources_ = graph::sources_of(frames);
  name_values();
}

std::string GraphWriter::unique(const std::string& wanted) {
  std::string name = wanted;
  for (size_t i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

void GraphWriter::name_values() {
  names_.resize(first_.values.size());
  const auto name_inputs = [&](Origin origin, const auto& name_of) {
    for (ValueId id = 0; id < names_.size(); ++id) {
      const RecordedValue& value = first_.values[id];
      if (value.origin == origin) names_[id] = unique(identifier(name_of(value.index)));
    }
  };
  // The names of forward's arguments are Python's too: they come first.
  name_inputs(Origin::kInput, [&](size_t i) { return parts_.input_names[i]; });
  name_inputs(Origin::kParameter, [&](size_t i) { return "p_" + parts_.tensors[i].name; });
  name_inputs(Origin::kBuffer, [&](size_t i) { return "b_" + parts_.tensors[i].name; });
  name_inputs(Origin::kConstant,
              [&](size_t i) { return "c_" + constant_name(parts_.constants, i); });
  for (const RecordedCall& call : first_.calls) {
    const std::string& op = call.op.operator_name().name;
    for (const RecordedResult& result : call.results) {
      for (const ValueId id : result.values) {
        if (id == kNoValue || !is_used_[first_.values[id].index]) continue;
        const bool is_item = result.is_list || call.results.size() > 1;
        names_[id] = unique(is_item ? "getitem" : identifier(op.substr(op.find("::") + 2)));
      }
    }
  }
}

std::vector<ValueId> GraphWriter::input_order() const {
  std::vector<ValueId> order;
  for (const Origin origin :
       {Origin::kParameter, Origin::kBuffer, Origin::kConstant, Origin::kInput}) {
    for (ValueId id = 0; id < first_.values.size(); ++id) {
      if (first_.values[id].origin == origin) order.push_back(id);
    }
  }
  return order;
}

json GraphWriter::graph() {
  const std::vector<ValueId> order = input_order();
  json inputs = json::array();
  for (const ValueId id : order) inputs.push_back(tensor(names_[id]));
  add_values(top_, order);
  emit(top_, {0, first_.calls.size()}, Level::kAutocast);
  for (size_t i = 0; i < first_.outputs.size(); ++i) {
    const RecordedArgument& output = first_.outputs[i];
    outputs_.push_back(
        output.kind == RecordedArgument::Kind::kTensor
            ? tensor(names_[output.values.front()])
            : constant(output.constant, formulas_.output_numbers(i), c10::AnyType::get()));
  }
  return graph_of(std::move(top_), std::move(inputs), outputs_);
}

json GraphWriter::graph_of(Body body, json inputs, json outputs) const {
  return {{"inputs", std::move(inputs)},
          {"outputs", std::move(outputs)},
          {"nodes", std::move(body.nodes)},
          {"tensor_values", std::move(body.tensor_values)},
          {"sym_int_values", std::move(body.sym_int_values)},
          {"sym_bool_values", json::object()},
          {"is_single_tensor_return", false},
          {"custom_obj_values", json::object()},
          {"sym_float_values", std::move(body.sym_float_values)}};
}

json GraphWriter::signature() const {
  json inputs = json::array();
  for (const ValueId id : input_order()) {
    const RecordedValue& value = first_.values[id];
    const json name = {{"name", names_[id]}};
    switch (value.origin) {
      case Origin::kParameter:
        inputs.push_back(
            {{"parameter", {{"arg", name}, {"parameter_name", parts_.tensors[value.index].name}}}});
        break;
      case Origin::kBuffer:
        inputs.push_back({{"buffer",
                           {{"arg", name},
                            {"buffer_name", parts_.tensors[value.index].name},
                            {"persistent", true}}}});
        break;
      case Origin::kConstant:
        inputs.push_back(
            {{"tensor_constant",
              {{"arg", name},
               {"tensor_constant_name", constant_name(parts_.constants, value.index)}}}});
        break;
      default:
        inputs.push_back({{"user_input", {{"arg", tensor(names_[id])}}}});
    }
  }
  json outputs = json::array();
  for (const json& output : outputs_) {
    outputs.push_back({{"user_output", {{"arg", output}}}});
  }
  return {{"input_specs", std::move(inputs)}, {"output_specs", std::move(outputs)}};
}

json GraphWriter::tensor_meta(ValueId id) const {
  const RecordedValue& value = first_.values[id];
  const auto sizes = [&](const std::vector<SizeFormula>& formulas) {
    json list = json::array();
    for (const SizeFormula& formula : formulas) {
      list.push_back(exported_size(formula, parts_.symbols));
    }
    return list;
  };
  return exported_meta(value.dtype, value.device, sizes(formulas_.sizes(id)),
                       sizes(formulas_.strides(id)), value.storage_offset,
                       value.origin == Origin::kParameter && value.requires_grad);
}

void GraphWriter::add_values(Body& body, const std::vector<ValueId>& values) const {
  for (const ValueId id : values) body.tensor_values[names_[id]] = tensor_meta(id);
}

json GraphWriter::metadata(size_t call) const {
  json made = {{"nn_module_stack", stack_.text(call)}};
  // "Net::forward at net.cpp:7"
  const std::string& source = sources_[call];
  const size_t at = source.rfind(" at "), colon = source.rfind(':');
  if (at == std::string::npos || colon == std::string::npos || colon < at) return made;
  const std::string file = source.substr(at + 4, colon - at - 4);
  // The line of an inlined operator is LibTorch's own.
  for (const char* folder : {"/include/ATen/", "/include/torch/", "/include/c10/"}) {
    if (file.find(folder) != std::string::npos) return made;
  }
  made["stack_trace"] =
      fmt::format("  File \"{}\", line {}, in {}\n    {}\n", file, source.substr(colon + 1),
                  source.substr(0, at), first_.calls[call].op.schema().name());
  return made;
}

bool GraphWriter::is_default(size_t call, size_t index) const {
  const auto& formal = first_.calls[call].op.schema().arguments()[index];
  if (!formal.default_value()) return false;
  for (const NumberFormula& number : formulas_.numbers(call, index)) {
    if (!number.whole.is_number() || number.real) return false;
  }
  const RecordedArgument& argument = first_.calls[call].arguments[index];
  return argument.values.empty() &&
         is_same_constant(argument.constant, *formal.default_value(), /*exactly=*/true);
}

json GraphWriter::tensor_list(const RecordedArgument& argument, const c10::TypePtr& type) const {
  const auto list = type->cast<c10::ListType>();
  if (list == nullptr || list->getElementType()->kind() != c10::TypeKind::OptionalType) {
    json names = json::array();
    for (const ValueId id : argument.values) names.push_back({{"name", names_[id]}});
    return {{"as_tensors", std::move(names)}};
  }
  json items = json::array();
  for (const ValueId id : argument.values) {
    items.push_back(id == kNoValue ? json{{"as_none", true}} : tensor(names_[id]));
  }
  return {{"as_optional_tensors", std::move(items)}};
}

json GraphWriter::constant(const c10::IValue& constant, const std::vector<NumberFormula>& numbers,
                           const c10::TypePtr& type) {
  const bool is_dynamic = std::ranges::any_of(numbers, [](const NumberFormula& number) {
    return !number.whole.is_number() || number.real;
  });
  if (!is_dynamic) return exported_constant(constant, type);
  if (constant.isInt()) return whole(numbers.front().whole);
  if (constant.isDouble()) return real(*numbers.front().real);
  json items = json::array();
  if (constant.isIntList()) {
    for (const NumberFormula& number : numbers) {
      items.push_back(number.whole.is_number() ? json{{"as_int", number.whole.number()}}
                                               : json{{"as_name", size_number(number.whole).name}});
    }
    return {{"as_sym_ints", std::move(items)}};
  }
  const auto values = constant.toDoubleVector();
  for (size_t i = 0; i < numbers.size(); ++i) {
    items.push_back(numbers[i].real ? real(*numbers[i].real)["as_sym_float"]
                                    : json{{"as_float", exported_real(values[i])}});
  }
  return {{"as_sym_floats", std::move(items)}};
}

json GraphWriter::argument(size_t call, size_t index) {
  const RecordedArgument& argument = first_.calls[call].arguments[index];
  const auto& formal = first_.calls[call].op.schema().arguments()[index];
  switch (argument.kind) {
    case RecordedArgument::Kind::kTensor:
      return argument.values.front() == kNoValue ? json{{"as_none", true}}
                                                 : tensor(names_[argument.values.front()]);
    case RecordedArgument::Kind::kTensors:
      return tensor_list(argument, formal.type());
    case RecordedArgument::Kind::kConstant:
      break;
  }
  return constant(argument.constant, formulas_.numbers(call, index), formal.real_type());
}

json GraphWriter::results(size_t call) const {
  json outputs = json::array();
  for (const RecordedResult& result : first_.calls[call].results) {
    if (result.is_list) {
      json names = json::array();
      for (const ValueId id : result.values) names.push_back({{"name", names_[id]}});
      outputs.push_back({{"as_tensors", std::move(names)}});
    } else {
      const bool is_none = result.values.empty() || result.values.front() == kNoValue;
      outputs.push_back(is_none ? json{{"as_none", true}} : tensor(names_[result.values.front()]));
    }
  }
  return outputs;
}

void GraphWriter::emit_call(Body& body, size_t index) {
  const RecordedCall& call = first_.calls[index];
  json inputs = json::array();
  const auto& formals = call.op.schema().arguments();
  // Arguments by position: what stands before one that is not the default is written too.
  size_t num_positional = 0;
  for (size_t i = 0; i < formals.size(); ++i) {
    // Python's reader wants "from" of uniform_, which is a keyword there.
    const bool is_wanted = !is_default(index, i) || formals[i].name() == "from";
    if (!formals[i].kwarg_only() && is_wanted) num_positional = i + 1;
  }
  for (size_t i = 0; i < formals.size(); ++i) {
    if (i >= num_positional && is_default(index, i)) continue;
    constexpr int kPositional = 1, kKeyword = 2;
    inputs.push_back({{"name", formals[i].name()},
                      {"arg", argument(index, i)},
                      {"kind", formals[i].kwarg_only() ? kKeyword : kPositional}});
  }
  json outputs = results(index);
  std::string name;
  if (outputs.size() == 1 && outputs[0].contains("as_tensor")) {
    name = outputs[0]["as_tensor"]["name"].get<std::string>();
  } else {
    const std::string& op = call.op.operator_name().name;
    name = unique(identifier(op.substr(op.find("::") + 2)));
  }
  body.nodes.push_back({{"target", target_of(call.op)},
                        {"inputs", std::move(inputs)},
                        {"outputs", std::move(outputs)},
                        {"metadata", metadata(index)},
                        {"is_hop_single_tensor_return", nullptr},
                        {"name", name}});
  for (const RecordedResult& result : call.results) {
    for (const ValueId id : result.values) {
      if (id != kNoValue) add_values(body, {id});
    }
  }
}

}  // namespace levin::interchange
