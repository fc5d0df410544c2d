// aten::linear of an nn.Linear, which others may run in another way: adapters.
#include "levin/interchange/load_exported.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {
namespace {

class LinearStep final : public Step {
 public:
  LinearStep(const Node& node, const ExportedPart& part, std::unique_ptr<Step> operation)
      : Step(node),
        part_(part),
        operation_(std::move(operation)),
        x_(find_input(node, "input")),
        weight_(find_input(node, "weight")),
        bias_(find_input(node, "bias")) {}

  void run(Frame& frame) const override {
    const auto& linear = part_.replaced_linear();
    if (!linear) return operation_->run(frame);
    const auto tensor = [&](const Operand* operand) {
      const c10::IValue none;
      const c10::IValue& value = operand == nullptr ? none : value_of(*operand, frame);
      return value.isTensor() ? value.toTensor() : at::Tensor();
    };
    frame.values[node().results.front().slots.front()] =
        linear(tensor(x_), tensor(weight_), tensor(bias_));
  }

 private:
  const ExportedPart& part_;
  std::unique_ptr<Step> operation_;
  const Operand* x_;
  const Operand* weight_;
  const Operand* bias_;
};

}  // namespace

std::unique_ptr<Step> make_linear_step(const Node& node, StepContext& context) {
  if (node.target != "torch.ops.aten.linear.default") return nullptr;
  const auto* part = dynamic_cast<const ExportedPart*>(context.module_of(node.module_path));
  const bool is_whole = node.results.size() == 1 && node.results[0].kind == Result::Kind::kOne &&
                        find_input(node, "input") != nullptr;
  if (part == nullptr || !part->is_linear() || !is_whole) return nullptr;
  return std::make_unique<LinearStep>(node, *part, make_operator_step(node, context));
}

}  // namespace levin::interchange
