#include "levin/interchange/run/mode.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "levin/base/options.h"
#include "levin/graph/operator_info.h"

namespace levin::interchange {
namespace {

constexpr const char* kCount = "num_batches_tracked";

bool is_none(const Operand* operand) {
  return operand == nullptr ||
         (operand->kind == Operand::Kind::kConstant && operand->constant.isNone());
}

/// Its constant, where it is a number.
std::optional<double> number_of(const Operand* operand) {
  if (is_none(operand) || !operand->constant.isScalar()) return std::nullopt;
  return operand->constant.toScalar().toDouble();
}

bool is_mode_flag(const c10::Argument& formal) {
  return formal.type()->kind() == c10::TypeKind::BoolType &&
         (formal.name() == "train" || formal.name() == "training" ||
          formal.name() == "use_input_stats");
}

bool has_count(const torch::nn::Module& module) {
  return module.named_buffers(/*recurse=*/false).contains(kCount);
}

/// It computes its statistics from the batch in either mode.
bool has_no_statistics(const Node& node, const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [&](const c10::Argument& formal) {
    return formal.name() == "running_mean" && is_none(find_input(node, "running_mean"));
  });
}

void note_batch_norm(const Node& node, bool is_training, Modes& modes, StepContext& context) {
  if (is_training || is_none(find_input(node, "running_mean"))) return;
  modes.counts = has_count(*modes.module);
  // nn.BatchNorm2d(momentum=None) averages over all batches, by a factor that evaluation has no need of.
  if (number_of(find_input(node, "momentum")) == 0) {
    context.only_evaluate.emplace_back(modes.module,
                                       place_of(node) + " was exported without a momentum");
  }
}

/// Random numbers that no flag switches off, as stochastic depth draws them, and buffers that it writes:
/// Python may do both in training alone.
void note_what_may_be_training(const Node& node, const c10::OperatorHandle& op,
                               StepContext& context) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    context.maybe_training.push_back(place_of(node) + " draws random numbers");
  }
  for (const c10::Argument& formal : op.schema().arguments()) {
    const Operand* operand = find_input(node, formal.name());
    const bool writes = graph::is_written(formal);
    if (!writes || operand == nullptr || operand->kind != Operand::Kind::kSlot) continue;
    const auto buffer = context.buffers.find(operand->slot);
    if (buffer == context.buffers.end()) continue;
    context.maybe_training.push_back(
        fmt::format("{} writes the buffer {}", place_of(node), printable(buffer->second)));
  }
}

/// Notes results that are a buffer or a view of one: a write to them writes the buffer.
void note_views(const Node& node, const c10::FunctionSchema& schema, StepContext& context) {
  for (size_t i = 0; i < std::min(node.results.size(), schema.returns().size()); ++i) {
    const c10::AliasInfo* result = schema.returns()[i].alias_info();
    if (result == nullptr) continue;
    for (const c10::Argument& formal : schema.arguments()) {
      const Operand* operand = find_input(node, formal.name());
      if (operand == nullptr || operand->kind != Operand::Kind::kSlot ||
          formal.alias_info() == nullptr) {
        continue;
      }
      const auto buffer = context.buffers.find(operand->slot);
      if (buffer == context.buffers.end()) continue;
      for (const Slot slot : node.results[i].slots) context.buffers.emplace(slot, buffer->second);
    }
  }
}

}  // namespace

Modes find_modes(const Node& node, const c10::OperatorHandle& op, StepContext& context) {
  const c10::FunctionSchema& schema = op.schema();
  note_views(node, schema, context);
  Modes modes;
  const torch::nn::Module* module = context.module_of(node.module_path);
  const Operand* first = node.inputs.empty() ? nullptr : &node.inputs.front().operand;
  if (node.target == "torch.ops.aten.add_.Tensor" && first->kind == Operand::Kind::kSlot) {
    const auto buffer = context.buffers.find(first->slot);
    modes.skipped = buffer != context.buffers.end() && buffer->second.ends_with(kCount);
    if (modes.skipped) modes.module = module;
    return modes;
  }
  const auto& formals = schema.arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    const Operand* operand = find_input(node, formals[i].name());
    if (is_mode_flag(formals[i]) && operand != nullptr && operand->constant.isBool()) {
      if (has_no_statistics(node, schema)) continue;
      modes.module = module;
      modes.flag = i;
      const bool is_training = operand->constant.toBool();
      // A rate of 0 says nothing of the mode.
      if (number_of(find_input(node, "p")) != 0) context.exported_training[module] |= is_training;
      note_batch_norm(node, is_training, modes, context);
    }
    if (formals[i].name() == "dropout_p") {
      modes.module = module;
      modes.rate = i;
      modes.training_rate = number_of(operand).value_or(0);
      if (modes.training_rate > 0) {
        context.exported_training[module] = true;
      } else if (context.attention_dropout) {
        modes.training_rate = *context.attention_dropout;
      } else {
        context.attention_without_rate.emplace_back(module, place_of(node));
      }
    }
  }
  if (modes.module == nullptr) note_what_may_be_training(node, op, context);
  return modes;
}

void Modes::apply(torch::jit::Stack& stack) const {
  const bool is_training = module->is_training();
  if (flag) stack[*flag] = is_training;
  if (rate) stack[*rate] = is_training ? training_rate : 0.0;
}

void Modes::count() const {
  if (!module->is_training()) return;
  const at::NoGradGuard no_grad;
  module->named_buffers(/*recurse=*/false)[kCount].add_(1);
}

}  // namespace levin::interchange
