// Assertions of torch.export: what the program takes for granted of its inputs.

#include "levin/base/check.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {
namespace {

/// aten._assert_scalar(scalar, text)
class AssertScalar final : public Step {
 public:
  explicit AssertScalar(const Node& node)
      : Step(node), scalar_(*find_input(node, "self")), text_(find_input(node, "assert_msg")) {}

  void run(Frame& frame) const override {
    const c10::IValue& scalar = value_of(scalar_, frame);
    const bool holds = scalar.isBool()     ? scalar.toBool()
                       : scalar.isDouble() ? scalar.toDouble() != 0
                                           : scalar.toInt() != 0;
    LEVIN_CHECK(holds, "interchange.input", "{}, in {}",
                text_ != nullptr && text_->constant.isString() ? text_->constant.toStringRef()
                                                               : "an assertion does not hold",
                place_of(node()));
  }

 private:
  const Operand& scalar_;
  const Operand* text_;
};

/// aten.sym_constrain_range(size, min, max): a number that was read from a tensor.
class Constrain final : public Step {
 public:
  explicit Constrain(const Node& node)
      : Step(node),
        number_(find_input(node, "size")),
        least_(find_input(node, "min")),
        most_(find_input(node, "max")) {}

  void run(Frame& frame) const override {
    const int64_t number = value_of(*number_, frame).toInt();
    const auto bound = [&](const Operand* operand) -> std::optional<int64_t> {
      if (operand == nullptr) return std::nullopt;
      const c10::IValue& value = value_of(*operand, frame);
      return value.isInt() ? std::optional(value.toInt()) : std::nullopt;
    };
    const auto least = bound(least_), most = bound(most_);
    LEVIN_CHECK((!least || number >= *least) && (!most || number <= *most), "interchange.input",
                "a number read from a tensor is {}, but the program takes {} to {}, in {}", number,
                least ? std::to_string(*least) : "any", most ? std::to_string(*most) : "any",
                place_of(node()));
  }

 private:
  const Operand* number_;
  const Operand* least_;
  const Operand* most_;
};

/// aten._assert_tensor_metadata: the dtype before a conversion, which may be another under automatic
/// mixed precision or on another device, and which the conversion takes as it comes.
class Nothing final : public Step {
 public:
  using Step::Step;
  void run(Frame&) const override {}
};

}  // namespace

std::unique_ptr<Step> make_check_step(const Node& node) {
  if (node.target == "torch.ops.aten._assert_tensor_metadata.default") {
    return std::make_unique<Nothing>(node);
  }
  const bool constrains = node.target == "torch.ops.aten.sym_constrain_range.default" ||
                          node.target == "torch.ops.aten.sym_constrain_range_for_size.default";
  const bool asserts = node.target == "torch.ops.aten._assert_scalar.default";
  if (!constrains && !asserts) return nullptr;
  LEVIN_CHECK(find_input(node, constrains ? "size" : "self") != nullptr, "interchange.archive",
              "{} lacks an argument", place_of(node));
  if (constrains) return std::make_unique<Constrain>(node);
  return std::make_unique<AssertScalar>(node);
}

}  // namespace levin::interchange
