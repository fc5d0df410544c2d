// Operators of LibTorch and of libraries that register their own (TORCH_LIBRARY).
#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Scalar.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "levin/base/check.h"
#include "levin/graph/optional_type.h"
#include "levin/interchange/run/mode.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {
namespace {

using c10::IValue;
using c10::TypeKind;
using torch::jit::Stack;

/// "torch.ops.aten.conv2d.default" is aten::conv2d without an overload's name.
std::optional<c10::OperatorHandle> find_operator(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  if (!target.starts_with(kPrefix)) return std::nullopt;
  target.remove_prefix(kPrefix.size());
  const size_t first = target.find('.'), last = target.rfind('.');
  if (first == std::string_view::npos || last == first) return std::nullopt;
  const std::string name =
      fmt::format("{}::{}", target.substr(0, first), target.substr(first + 1, last - first - 1));
  const std::string overload(target.substr(last + 1));
  return c10::Dispatcher::singleton().findSchema({name, overload == "default" ? "" : overload});
}

at::Tensor wrapped(const IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// A value as the schema's type wants it, as Python's argument parser does: a number for a tensor is a
/// 0-dim tensor that takes part in no type promotion, an integer for a float is one, a number for a list
/// of N is N of them.
IValue conform(IValue value, const c10::Argument& formal) {
  const c10::TypePtr type = graph::without_optional(formal.type());
  if (value.isNone()) return value;
  if (type->kind() == TypeKind::TensorType && value.isScalar()) return wrapped(value);
  if (type->kind() == TypeKind::FloatType && value.isInt()) {
    return static_cast<double>(value.toInt());
  }
  if (type->kind() == TypeKind::StringType || type->kind() != TypeKind::ListType) return value;
  const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
  const TypeKind kind = element->kind();
  const auto count = static_cast<size_t>(formal.N().value_or(1));
  if ((kind == TypeKind::IntType || kind == TypeKind::SymIntType) && value.isInt()) {
    return std::vector<int64_t>(count, value.toInt());
  }
  if (kind == TypeKind::FloatType && value.isIntList()) {
    const auto integers = value.toIntVector();
    return std::vector<double>(integers.begin(), integers.end());
  }
  if (kind == TypeKind::FloatType && value.isScalar()) {
    return std::vector<double>(count, value.toScalar().toDouble());
  }
  // An empty list has no type of its own.
  if (kind == TypeKind::TensorType && value.isList() && value.toListRef().empty()) {
    return c10::List<at::Tensor>();
  }
  return value;
}

/// Makes a list whose items are known only in a call.
IValue list_of(const Operand& operand, const c10::TypePtr& element, const Frame& frame) {
  const auto fill = [&](auto list, const auto& get) {
    list.reserve(operand.items.size());
    for (const Operand& item : operand.items) list.push_back(get(value_of(item, frame)));
    return IValue(std::move(list));
  };
  switch (element->kind()) {
    case TypeKind::TensorType:
      return fill(c10::List<at::Tensor>(), [](const IValue& value) { return value.toTensor(); });
    case TypeKind::OptionalType:
      return fill(c10::List<std::optional<at::Tensor>>(), [](const IValue& value) {
        return value.isNone() ? std::nullopt : std::optional(value.toTensor());
      });
    case TypeKind::FloatType:
      return fill(c10::List<double>(),
                  [](const IValue& value) { return value.toScalar().toDouble(); });
    case TypeKind::BoolType:
      return fill(c10::List<bool>(), [](const IValue& value) { return value.toBool(); });
    case TypeKind::NumberType:
      return fill(c10::List<at::Scalar>(), [](const IValue& value) { return value.toScalar(); });
    default:
      return fill(c10::List<int64_t>(), [](const IValue& value) {
        return value.isInt() ? value.toInt() : value.toScalar().toLong();
      });
  }
}

class OperatorStep final : public Step {
 public:
  OperatorStep(const Node& node, const c10::OperatorHandle& op, StepContext& context)
      : Step(node), op_(op) {
    const auto& formals = op.schema().arguments();
    for (const NamedOperand& input : node.inputs) {
      LEVIN_CHECK(std::ranges::find(formals, input.name, &c10::Argument::name) != formals.end(),
                  "interchange.archive",
                  "{} has the argument '{}', but the operator's schema is {}", place_of(node),
                  input.name, c10::toString(op.schema()));
    }
    for (const c10::Argument& formal : formals) {
      arguments_.push_back(argument(node, formal, context));
    }
    LEVIN_CHECK(node.results.size() <= std::max<size_t>(op.schema().returns().size(), 1),
                "interchange.archive", "{} has {} results, but the operator's schema is {}",
                place_of(node), node.results.size(), c10::toString(op.schema()));
    modes_ = find_modes(node, op, context);
  }

  void run(Frame& frame) const override {
    if (modes_.skipped && !modes_.module->is_training()) return skip(frame);
    Stack stack;
    stack.reserve(arguments_.size());
    for (const Argument& argument : arguments_) stack.push_back(value(argument, frame));
    if (modes_.module != nullptr) modes_.apply(stack);
    op_.callBoxed(stack);
    for (size_t i = 0; i < node().results.size(); ++i) {
      store(node().results[i], std::move(stack[i]), frame);
    }
    if (modes_.counts) modes_.count();
  }

 private:
  enum class Form { kConstant, kSlot, kNumberAsTensor, kNumberAsFloat, kList, kDevice };
  struct Argument {
    Form form = Form::kConstant;
    IValue constant;
    Slot slot = 0;
    const Operand* list = nullptr;
    c10::TypePtr element;
  };

  static Argument argument(const Node& node, const c10::Argument& formal, StepContext& context) {
    const auto own = std::ranges::find(node.inputs, formal.name(), &NamedOperand::name);
    Argument made;
    if (own == node.inputs.end()) {
      LEVIN_CHECK(formal.default_value().has_value(), "interchange.archive",
                  "{} lacks the argument '{}'", place_of(node), formal.name());
      made.constant = *formal.default_value();
      return made;
    }
    const Operand& operand = own->operand;
    const c10::TypePtr type = graph::without_optional(formal.type());
    switch (operand.kind) {
      case Operand::Kind::kConstant:
        made.constant = conform(operand.constant, formal);
        if (operand.meaning == Operand::Meaning::kDevice &&
            operand.constant.toDevice().type() == context.exported_device.type()) {
          made.form = Form::kDevice;
        }
        break;
      case Operand::Kind::kSlot:
        made.slot = operand.slot;
        made.form = type->kind() == TypeKind::TensorType  ? Form::kNumberAsTensor
                    : type->kind() == TypeKind::FloatType ? Form::kNumberAsFloat
                                                          : Form::kSlot;
        break;
      case Operand::Kind::kList: {
        const auto list = type->cast<c10::ListType>();
        LEVIN_CHECK(list != nullptr, "interchange.archive",
                    "{} has a list for the argument '{}', but the operator takes {}",
                    place_of(node), formal.name(), formal.type()->str());
        made.form = Form::kList;
        made.list = &operand;
        made.element = list->getElementType();
        break;
      }
      case Operand::Kind::kBody:
        LEVIN_FAIL("interchange.archive", "{} has a subgraph for the argument '{}'", place_of(node),
                   formal.name());
    }
    return made;
  }

  static IValue value(const Argument& argument, const Frame& frame) {
    switch (argument.form) {
      case Form::kSlot:
        return frame.values[argument.slot];
      case Form::kNumberAsTensor: {
        const IValue& value = frame.values[argument.slot];
        return value.isScalar() ? wrapped(value) : value;
      }
      case Form::kNumberAsFloat: {
        const IValue& value = frame.values[argument.slot];
        return value.isInt() ? IValue(static_cast<double>(value.toInt())) : value;
      }
      case Form::kList:
        return list_of(*argument.list, argument.element, frame);
      case Form::kDevice:
        return frame.device;
      case Form::kConstant:
        break;
    }
    return argument.constant;
  }

  void store(const Result& result, IValue value, Frame& frame) const {
    if (result.kind == Result::Kind::kUnused) return;
    if (result.kind == Result::Kind::kOne) {
      frame.values[result.slots.front()] = std::move(value);
      return;
    }
    const auto items = value.toListRef();
    LEVIN_CHECK(items.size() == result.slots.size(), "interchange.input",
                "{} returned {} tensors, but the program was exported with {}", place_of(node()),
                items.size(), result.slots.size());
    for (size_t i = 0; i < items.size(); ++i) frame.values[result.slots[i]] = items[i];
  }

  /// It writes its first argument, which is its result.
  void skip(Frame& frame) const {
    store(node().results.front(), value(arguments_.front(), frame), frame);
  }

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
  Modes modes_;
};

}  // namespace

std::unique_ptr<Step> make_operator_step(const Node& node, StepContext& context) {
  const auto op = find_operator(node.target);
  if (!op) return nullptr;
  return std::make_unique<OperatorStep>(node, *op, context);
}

}  // namespace levin::interchange
