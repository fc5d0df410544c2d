// libFuzzer: a graph of a text, whatever it says of its values, is replayed with the values that the
// interpreter gives it, or throws. Of a few operators that look at their arguments: LibTorch's other
// faults are not levin's.
//
//   fuzz_replay -max_total_time=20

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "levin/base/error.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "tests/fuzz/limits.h"

namespace {

namespace graph = levin::graph;

constexpr std::array kOperators = {
    std::string_view("aten::t"),         std::string_view("aten::mm"),
    std::string_view("aten::add"),       std::string_view("aten::add_"),
    std::string_view("aten::mul"),       std::string_view("aten::relu"),
    std::string_view("aten::sum"),       std::string_view("aten::cat"),
    std::string_view("aten::sort"),      std::string_view("aten::split"),
    std::string_view("aten::view"),      std::string_view("aten::select"),
    std::string_view("aten::slice"),     std::string_view("aten::transpose"),
    std::string_view("aten::unsqueeze"), std::string_view("aten::_log_softmax"),
    std::string_view("aten::copy_"),     std::string_view("aten::zeros_like"),
    std::string_view("aten::empty_like")};

constexpr int64_t kMostElements = 1 << 14;

bool is_small(const graph::ValueType& type) {
  int64_t count = 1, last = 0;
  for (size_t dim = 0; dim < type.sizes.size(); ++dim) {
    if (type.sizes[dim] > kMostElements || type.strides[dim] > kMostElements) return false;
    count *= std::max<int64_t>(type.sizes[dim], 1);
    last += type.sizes[dim] * type.strides[dim];
    if (count > kMostElements || last > kMostElements) return false;
  }
  return type.sizes.size() < 8;
}

bool is_of_the_few(const graph::Graph& graph) {
  return std::ranges::all_of(graph.nodes(), [](const graph::Node& node) {
    const std::string_view name = node.target().substr(0, node.target().find('.'));
    const bool is_known =
        node.opcode() != graph::Opcode::kCallFunction || std::ranges::count(kOperators, name) > 0;
    return is_known && std::ranges::all_of(node.outputs(), [](const graph::Value* value) {
             return is_small(value->type());
           });
  });
}

at::Tensor ones_of(const graph::ValueType& type) {
  if (type.kind != graph::ValueKind::kTensor) return {};
  return at::empty_strided(type.sizes, type.strides,
                           at::TensorOptions(type.dtype).device(type.device))
      .fill_(1);
}

void replay(const std::string& text) {
  const graph::Graph graph = graph::parse(text);
  if (!is_of_the_few(graph)) return;
  graph::Replay replay(graph);
  std::vector<at::Tensor> inputs;
  for (const graph::Node* node : graph.find_nodes(graph::Opcode::kPlaceholder)) {
    inputs.push_back(ones_of(node->output().type()));
  }
  const auto wanted = graph::interpret(graph, inputs).outputs;
  const auto came = replay(inputs);
  if (came.size() != wanted.size()) std::abort();
  for (size_t i = 0; i < came.size(); ++i) {
    const bool is_same = came[i].defined() == wanted[i].defined() &&
                         (!came[i].defined() || came[i].sizes() == wanted[i].sizes());
    if (!is_same || (came[i].defined() && came[i].dtype() != wanted[i].dtype())) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  try {
    replay(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const levin::Error&) {
  } catch (const c10::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
