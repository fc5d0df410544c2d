#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "levin/graph/replay/replay_impl.h"

namespace levin::graph {
namespace {

/// Losses whose kernels put the losses of all elements where the reduced one goes in the end.
bool resizes_its_output(const OperatorInfo& info) {
  constexpr std::array kNames = {
      std::string_view("aten::mse_loss"), std::string_view("aten::smooth_l1_loss"),
      std::string_view("aten::huber_loss"), std::string_view("aten::binary_cross_entropy")};
  return std::ranges::count(kNames, info.op.schema().name()) > 0;
}

bool is_out_variant(const c10::FunctionSchema& out, const c10::FunctionSchema& schema) {
  const auto& parameters = schema.arguments();
  const auto& with_outs = out.arguments();
  if (with_outs.size() != parameters.size() + schema.returns().size()) return false;
  for (size_t i = 0; i < with_outs.size(); ++i) {
    if (with_outs[i].is_out() != (i >= parameters.size())) return false;
    if (i < parameters.size() && (with_outs[i].name() != parameters[i].name() ||
                                  *with_outs[i].type() != *parameters[i].type())) {
      return false;
    }
  }
  return true;
}

/// The kernels of the device that the results lie on; none where one of them is no tensor.
std::optional<c10::DispatchKey> key_of_results(const Node& node) {
  std::optional<c10::Device> device;
  for (const Value* value : node.outputs()) {
    if (value->type().kind == ValueKind::kRandom) continue;
    if (value->type().kind != ValueKind::kTensor) return std::nullopt;
    device = value->type().device;
  }
  if (!device) return std::nullopt;
  return device->is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
}

}  // namespace

std::optional<c10::OperatorHandle> out_variant_of(const Node& node) {
  const OperatorInfo& info = info_of(node);
  const auto key = key_of_results(node);
  const size_t num_outputs = info.is_result.size() + (info.is_random ? 1 : 0);
  if (!key || num_outputs != node.outputs().size() || resizes_its_output(info)) return std::nullopt;
  const auto name = c10::Symbol::fromQualString(info.op.schema().name());
  for (const auto& overload : torch::jit::getAllOperatorsFor(name)) {
    if (!is_out_variant(overload->schema(), info.op.schema())) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(overload->schema().operator_name());
    if (op && op->hasKernelForDispatchKey(*key)) return op;
  }
  return std::nullopt;
}

}  // namespace levin::graph
