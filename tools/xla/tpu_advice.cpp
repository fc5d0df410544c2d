#include "tools/xla/tpu_advice.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "tools/graph/node_text.h"

namespace levin::tools {
namespace {

using graph::Node;
using graph::Opcode;

/// "aten::_scaled_dot_product_flash_attention_for_cpu" is "attention" to who wrote the program.
std::string operation_of(const Node& node) {
  const std::string_view target = node.target();
  if (target.find("attention") != std::string_view::npos) {
    return target.ends_with("backward") ? "attention_backward" : "attention";
  }
  return std::string(target.substr(target.find("::") + 2));
}

bool is_half(const Node& node) {
  const at::ScalarType dtype = node.output().type().dtype;
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

class Adviser {
 public:
  Adviser(const graph::Graph& graph, const TpuSlice& slice, size_t num_largest)
      : graph_(graph), outline_(outline_of(graph)), texts_(texts_of(graph)) {
    advice_.slice = slice;
    advice_.plan = plan_of(graph, description_of(slice), num_largest);
  }

  TpuAdvice run(size_t num_largest) {
    for (const Node& node : graph_.nodes()) add_node(node);
    for (const graph::NodeCost& cost : graph::cost_of(graph_, advice_.plan.device).nodes) {
      add_product(cost);
    }
    const auto loss = [](const PaddedProduct& one) { return one.padded - one.flops; };
    std::erase_if(advice_.products, [&](const PaddedProduct& one) { return loss(one) <= 0.0; });
    std::ranges::stable_sort(advice_.products, std::greater(), loss);
    if (advice_.products.size() > num_largest) advice_.products.resize(num_largest);
    return std::move(advice_);
  }

 private:
  void add_node(const Node& node) {
    for (const graph::Value* value : node.outputs()) {
      const bool is_tensor = value->type().kind == graph::ValueKind::kTensor;
      advice_.has_float64 |= is_tensor && value->type().dtype == at::kDouble &&
                             !value->type().sizes.empty();  // numbers cost nothing
    }
    if (node.opcode() == Opcode::kGetAttr) add_state(node.output().type());
    if (node.opcode() == Opcode::kPlaceholder && !is_old_gradient(node)) {
      const auto& sizes = node.output().type().sizes;
      advice_.inputs.push_back({.name = node.name(),
                                .type = texts_.at(&node).types.at(0),
                                .batch_size = sizes.empty() ? 0 : sizes[0]});
    }
  }

  void add_state(const graph::ValueType& type) {
    const int64_t numel =
        std::accumulate(type.sizes.begin(), type.sizes.end(), int64_t{1}, std::multiplies());
    advice_.state_bytes += numel * static_cast<int64_t>(c10::elementSize(type.dtype));
    advice_.padded_state_bytes += padded_bytes(type.sizes, type.dtype);
  }

  void add_product(const graph::NodeCost& cost) {
    const std::vector<MatrixProduct> products = products_of(*cost.node);
    double needed = 0.0, filled = 0.0;
    for (const MatrixProduct& product : products) {
      needed += product.multiplications();
      filled += product.padded().multiplications();
    }
    if (needed == 0.0) return;
    const double padded = cost.flops * filled / needed;
    advice_.product_flops += cost.flops;
    advice_.padded_flops += padded;
    if (!is_half(*cost.node)) advice_.float32_flops += cost.flops;
    PaddedProduct& same = entry_of(*cost.node, products.front());
    ++same.count;
    same.flops += cost.flops;
    same.padded += padded;
  }

  PaddedProduct& entry_of(const Node& node, const MatrixProduct& sizes) {
    const std::string operation = operation_of(node);
    for (PaddedProduct& one : advice_.products) {
      if (one.operation == operation && one.sizes == sizes) return one;
    }
    return advice_.products.emplace_back(PaddedProduct{
        .operation = operation, .module = outline_.roles.at(&node).module, .sizes = sizes});
  }

  const graph::Graph& graph_;
  const StepOutline outline_;
  const std::unordered_map<const Node*, NodeText> texts_;
  TpuAdvice advice_;
};

}  // namespace

TpuAdvice advice_of(const graph::Graph& graph, const TpuSlice& slice, size_t num_largest) {
  return Adviser(graph, slice, num_largest).run(num_largest);
}

int64_t next_full(int64_t size, int64_t tile) { return (size + tile - 1) / tile * tile; }

}  // namespace levin::tools
