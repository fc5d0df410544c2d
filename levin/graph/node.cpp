#include <ATen/core/ivalue.h>

#include <algorithm>
#include <utility>

#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::graph {

ValueType ValueType::of(const at::Tensor& tensor) {
  ValueType type;
  type.assign(tensor);
  return type;
}

void ValueType::assign(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    *this = {.kind = ValueKind::kUndefined};
    return;
  }
  kind = ValueKind::kTensor;
  dtype = tensor.scalar_type();
  device = tensor.device();
  sizes = tensor.sizes();
  strides = tensor.strides();
}

Argument::Argument(std::nullptr_t) : Argument(c10::IValue()) {}
Argument::Argument(bool constant) : Argument(c10::IValue(constant)) {}
Argument::Argument(int64_t constant) : Argument(c10::IValue(constant)) {}
Argument::Argument(double constant) : Argument(c10::IValue(constant)) {}
Argument::Argument(const char* constant) : Argument(c10::IValue(constant)) {}
Argument::Argument(at::ScalarType constant) : Argument(static_cast<int64_t>(constant)) {}
Argument::Argument(std::vector<int64_t> constant) : Argument(c10::IValue(std::move(constant))) {}
Argument::Argument(const c10::IValue& constant)
    : variant(std::make_shared<const c10::IValue>(constant)) {}

void Value::replace_all_uses_with(Value& other) {
  if (&other == this) return;
  const Users users = users_;
  for (Node* user : users) user->replace_input_with(*this, other);
}

std::string_view Node::target() const {
  switch (opcode_) {
    case Opcode::kPlaceholder:
      return "placeholder";
    case Opcode::kGetAttr:
      return "get_attr";
    case Opcode::kRandomState:
      return "random_state";
    case Opcode::kOutput:
      return "output";
    case Opcode::kCallFunction:
      break;
  }
  return info_->name;
}

const c10::OperatorHandle& Node::op() const {
  TORCH_INTERNAL_ASSERT(info_ != nullptr, target(), " has no operator");
  return info_->op;
}

bool Node::is_random() const { return info_ != nullptr && info_->is_random; }

bool Node::is_host_read() const { return info_ != nullptr && info_->is_host_read; }

Values Node::inputs() const {
  Values found;
  for (const Argument& argument : arguments_) {
    for_each_value(argument, [&](Value& value) { found.push_back(&value); });
  }
  return found;
}

Value* Node::input(size_t index) const { return inputs().at(index); }

void Node::set_argument(size_t index, Argument argument) {
  remove_uses();
  arguments_.at(index) = std::move(argument);
  add_uses();
}

void Node::replace_input_with(Value& old_input, Value& new_input) {
  remove_uses();
  for (Argument& argument : arguments_) {
    if (Value** value = std::get_if<Value*>(&argument)) {
      if (*value == &old_input) *value = &new_input;
    } else if (auto* values = std::get_if<Values>(&argument)) {
      std::ranges::replace(*values, &old_input, &new_input);
    }
  }
  add_uses();
}

void Node::add_uses() {
  for (const Argument& argument : arguments_) {
    for_each_value(argument, [&](Value& value) { value.users_.push_back(this); });
  }
}

void Node::remove_uses() {
  for (const Argument& argument : arguments_) {
    for_each_value(argument, [&](Value& value) {
      const auto use = std::ranges::find(value.users_, this);
      if (use == value.users_.end()) return;
      *use = value.users_.back();
      value.users_.pop_back();
    });
  }
}

}  // namespace levin::graph
