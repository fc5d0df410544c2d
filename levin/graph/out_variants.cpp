#include <algorithm>
#include <array>
#include <string_view>

#include "levin/graph/out_variants_impl.h"

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

}  // namespace

OutVariants::OutVariants() {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    overloads_[name.name].push_back(name);
  }
}

std::optional<c10::OperatorHandle> OutVariants::find(const OperatorInfo& info,
                                                     c10::DispatchKey key) const {
  const auto overloads = overloads_.find(info.op.schema().name());
  if (overloads == overloads_.end() || resizes_its_output(info)) return std::nullopt;
  for (const c10::OperatorName& name : overloads->second) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && op->hasKernelForDispatchKey(key) && is_out_variant(op->schema(), info.op.schema())) {
      return op;
    }
  }
  return std::nullopt;
}

}  // namespace levin::graph
