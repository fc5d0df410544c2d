// Regions of a program: where the code turns gradients off (torch::NoGradGuard) or autocast on, the operators
// are the body of a higher-order operator, as torch.export has them. And the nodes that compute sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "levin/interchange/export/write/exported_constant.h"
#include "levin/interchange/export/write/graph_writer.h"

namespace levin::interchange {

using nlohmann::json;

namespace {

json node_input(const char* name, json value) {
  return {{"name", name}, {"arg", std::move(value)}, {"kind", 1}};
}

}  // namespace

bool GraphWriter::is_ambient(const CallMode& mode, Level level) const {
  return level == Level::kAutocast ? !mode.autocast.enabled : mode.grad_enabled;
}

void GraphWriter::emit(Body& body, Range range, Level level) {
  const auto is_same = [&](const CallMode& left, const CallMode& right) {
    if (level == Level::kGrad) return left.grad_enabled == right.grad_enabled;
    return left.autocast.enabled == right.autocast.enabled &&
           (!left.autocast.enabled || left.autocast.dtype == right.autocast.dtype);
  };
  for (size_t i = range.begin; i < range.end; ++i) {
    if (!is_used_[i]) continue;
    if (level == Level::kPlain) {
      emit_call(body, i);
      continue;
    }
    const CallMode& mode = first_.calls[i].mode;
    Range same{i, i + 1};
    while (same.end < range.end &&
           (!is_used_[same.end] || is_same(mode, first_.calls[same.end].mode))) {
      ++same.end;
    }
    const Level inner = level == Level::kAutocast ? Level::kGrad : Level::kPlain;
    if (is_ambient(mode, level)) {
      emit(body, same, inner);
    } else {
      emit_region(body, same, level);
    }
    i = same.end - 1;
  }
}

json GraphWriter::region_settings(const CallMode& mode, Level level) const {
  const auto setting = [](json value) { return node_input("", std::move(value)); };
  if (level == Level::kGrad) {
    return json::array({setting({{"as_bool", mode.grad_enabled}})});
  }
  return json::array(
      {setting({{"as_string", first_.values.empty()
                                  ? "cpu"
                                  : c10::DeviceTypeName(first_.values.front().device.type(),
                                                        /*lower_case=*/true)}}),
       setting({{"as_scalar_type", exported_dtype(mode.autocast.dtype)}}),
       setting({{"as_bool", mode.autocast.enabled}}), setting({{"as_bool", mode.autocast.cache}})});
}

void GraphWriter::emit_region(Body& body, Range range, Level level) {
  const Level inner_level = level == Level::kAutocast ? Level::kGrad : Level::kPlain;
  std::vector<ValueId> inputs, outputs;
  std::set<std::string> numbers;
  ValueId last = kNoValue;
  const auto add_new = [](std::vector<ValueId>& list, ValueId id) {
    if (std::ranges::find(list, id) == list.end()) list.push_back(id);
  };
  const auto is_inside = [&](ValueId id) {
    const RecordedValue& value = first_.values[id];
    return value.origin == RecordedValue::Origin::kResult && value.index >= range.begin &&
           value.index < range.end;
  };
  for (size_t i = range.begin; i < range.end; ++i) {
    if (!is_used_[i]) continue;
    collect_numbers(i, numbers);
    for (const RecordedArgument& argument : first_.calls[i].arguments) {
      for (const ValueId id : argument.values) {
        if (id != kNoValue && !is_inside(id)) add_new(inputs, id);
      }
    }
    for (const RecordedResult& result : first_.calls[i].results) {
      for (const ValueId id : result.values) {
        if (id == kNoValue) continue;
        last = id;
        if (last_use_[id] >= range.end) add_new(outputs, id);
      }
    }
  }
  // Python takes no region without a result: one that writes buffers alone gives what it wrote.
  if (outputs.empty() && last != kNoValue) outputs.push_back(last);

  Body inner;
  json inner_inputs = json::array(), inner_outputs = json::array();
  const CallMode mode = first_.calls[range.begin].mode;
  json node_inputs = region_settings(mode, level);
  const std::string name = fmt::format("submod_{}", num_regions_++);
  for (const ValueId id : inputs) {
    inner_inputs.push_back({{"as_tensor", {{"name", names_[id]}}}});
  }
  // A body takes no reals: it computes its own.
  for (const std::string& key : numbers) {
    const Number& number = numbers_.at(key);
    inner_inputs.push_back({{"as_sym_int", {{"as_name", number.name}}}});
    inner.sym_int_values[number.name] = number.value;
  }
  add_values(inner, inputs);
  const auto outer_reals = std::exchange(reals_, {});
  Body* const outer = std::exchange(body_, &inner);
  emit(inner, range, inner_level);
  body_ = outer;
  reals_ = outer_reals;
  for (const ValueId id : outputs) {
    inner_outputs.push_back({{"as_tensor", {{"name", names_[id]}}}});
  }
  node_inputs.push_back(node_input(
      "",
      {{"as_graph",
        {{"name", name}, {"graph", graph_of(std::move(inner), inner_inputs, inner_outputs)}}}}));
  for (const json& input : inner_inputs) node_inputs.push_back(node_input("", input));
  const char* target = level == Level::kGrad ? "wrap_with_set_grad_enabled" : "wrap_with_autocast";
  body.nodes.push_back({{"target", std::string("torch.ops.higher_order.") + target},
                        {"inputs", std::move(node_inputs)},
                        {"outputs", std::move(inner_outputs)},
                        {"metadata", {{"nn_module_stack", stack_.text(range.begin)}}},
                        {"is_hop_single_tensor_return", false},
                        {"name", unique(target)}});
  add_values(body, outputs);
}

void GraphWriter::collect_numbers(size_t call, std::set<std::string>& keys) {
  const auto& arguments = first_.calls[call].arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const NumberFormula& number : formulas_.numbers(call, i)) {
      if (!number.whole.is_number()) {
        size_number(number.whole);
        keys.insert(formula_text(number.whole, parts_.symbols));
      }
      if (number.real && !number.real->formula.is_number()) {
        size_number(number.real->formula);
        keys.insert(formula_text(number.real->formula, parts_.symbols));
      }
    }
  }
}

json GraphWriter::whole(const SizeFormula& formula) {
  if (formula.is_number()) return {{"as_int", formula.number()}};
  return {{"as_sym_int", {{"as_name", size_number(formula).name}}}};
}

const GraphWriter::Number& GraphWriter::add_number(const std::string& key, const char* target,
                                                   const std::string& name, json inputs,
                                                   bool is_real, json value) {
  Number number{.name = unique(name), .is_real = is_real, .value = std::move(value)};
  // Sizes are computed before the regions that take them.
  Body& body = is_real ? *body_ : top_;
  body.nodes.push_back(
      {{"target", target},
       {"inputs", std::move(inputs)},
       {"outputs",
        json::array({{{is_real ? "as_sym_float" : "as_sym_int", {{"as_name", number.name}}}}})},
       {"metadata", {{"nn_module_stack", stack_.root()}}},
       {"is_hop_single_tensor_return", nullptr},
       {"name", number.name}});
  (is_real ? body.sym_float_values : body.sym_int_values)[number.name] = number.value;
  return (is_real ? reals_ : numbers_).emplace(key, std::move(number)).first->second;
}

const GraphWriter::Number& GraphWriter::size_number(const SizeFormula& formula) {
  using Kind = SizeFormula::Kind;
  const std::string key = formula_text(formula, parts_.symbols);
  if (const auto known = numbers_.find(key); known != numbers_.end()) return known->second;
  const json value = exported_size(formula, parts_.symbols);
  if (formula.kind() == Kind::kDim) {
    const auto& [place, dim] = parts_.symbols[formula.index()].dims.front();
    const ValueId id = parts_.tensors.size() + place;
    return add_number(key, "torch.ops.aten.sym_size.int", "sym_size_int",
                      {node_input("self", {{"as_tensor", {{"name", names_[id]}}}}),
                       node_input("dim", {{"as_int", dim}})},
                      /*is_real=*/false, value);
  }
  const json left = whole(formula.left()), right = whole(formula.right());
  const char* target = formula.kind() == Kind::kAdd   ? "_operator.add"
                       : formula.kind() == Kind::kMul ? "_operator.mul"
                                                      : "_operator.floordiv";
  const std::string name = std::string("sym_") + (std::strchr(target, '.') + 1);
  return add_number(key, target, name, json::array({node_input("a", left), node_input("b", right)}),
                    /*is_real=*/false, value);
}

std::string GraphWriter::real_text(const FormulaSearch::Real& number) const {
  const std::string size = fmt::format("ToFloat({})", formula_text(number.formula, parts_.symbols));
  if (number.factor == 1 && !number.is_divided) return size;
  return fmt::format("{}(Float('{}', precision=53), {})",
                     number.is_divided ? "FloatTrueDiv" : "Mul", number.factor, size);
}

json GraphWriter::real(const FormulaSearch::Real& number) {
  return {{"as_sym_float", {{"as_name", real_number(number).name}}}};
}

const GraphWriter::Number& GraphWriter::real_number(const FormulaSearch::Real& number) {
  const std::string key = real_text(number);
  if (const auto known = reals_.find(key); known != reals_.end()) return known->second;
  std::vector<int64_t> sizes;
  for (const Symbol& symbol : parts_.symbols) sizes.push_back(symbol.size);
  const auto size = static_cast<double>(number.formula.value(sizes));
  const auto value = [](const std::string& text, double hint) {
    return json{{"as_expr", {{"expr_str", text}, {"hint", {{"as_float", hint}}}}}};
  };
  if (number.factor == 1 && !number.is_divided) {
    return add_number(key, "torch.sym_float", "sym_float",
                      json::array({node_input("a", whole(number.formula))}),
                      /*is_real=*/true, value(key, size));
  }
  const json of_size = real({.formula = number.formula});
  const json factor = {{"as_float", number.factor}};
  if (number.is_divided) {
    return add_number(key, "_operator.truediv", "sym_truediv",
                      json::array({node_input("a", factor), node_input("b", of_size)}),
                      /*is_real=*/true, value(key, number.factor / size));
  }
  return add_number(key, "_operator.mul", "sym_mul",
                    json::array({node_input("a", factor), node_input("b", of_size)}),
                    /*is_real=*/true, value(key, number.factor * size));
}

}  // namespace levin::interchange
