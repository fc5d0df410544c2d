#include <ATen/Context.h>
#include <ATen/ops/empty_strided.h>

#include <exception>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay_impl.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

/// Restores the generators that a graph draws from, so that they go on as if it had not.
class KeptGenerators {
 public:
  explicit KeptGenerators(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (!node.is_random()) continue;
      keep(at::globalContext().defaultGenerator(at::kCPU));
      const c10::Device device = node.output().type().device;
      if (!device.is_cpu()) keep(at::globalContext().defaultGenerator(device));
      return;
    }
  }
  ~KeptGenerators() {
    for (auto& [generator, state] : kept_) {
      const std::scoped_lock lock(generator.mutex());
      generator.set_state(state);
    }
  }
  KeptGenerators(const KeptGenerators&) = delete;
  KeptGenerators& operator=(const KeptGenerators&) = delete;

 private:
  void keep(at::Generator generator) {
    const std::scoped_lock lock(generator.mutex());
    at::Tensor state = generator.get_state();
    kept_.emplace_back(std::move(generator), std::move(state));
  }

  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

at::Tensor zeros_of(const ValueType& type) {
  if (type.kind == ValueKind::kUndefined) return {};
  return at::empty_strided(type.sizes, type.strides,
                           at::TensorOptions(type.dtype).device(type.device))
      .zero_();
}

/// The same tensor type; how a dim of one element is strided says nothing.
bool are_alike(const ValueType& a, const ValueType& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.device != b.device || a.sizes != b.sizes) {
    return false;
  }
  for (size_t dim = 0; dim < a.sizes.size(); ++dim) {
    if (a.sizes[dim] == 0) return true;
  }
  for (size_t dim = 0; dim < a.sizes.size(); ++dim) {
    if (a.sizes[dim] != 1 && a.strides[dim] != b.strides[dim]) return false;
  }
  return true;
}

void check_results(const Node& node, const std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueType& claimed = node.output(i).type();
    if (claimed.kind == ValueKind::kHost || claimed.kind == ValueKind::kRandom) continue;
    const ValueType came = ValueType::of(results[i]);
    LEVIN_CHECK(are_alike(came, claimed), "graph.replay",
                "{} returns {}, but the text of the graph says {}; record the function again",
                node.target(), text_of(came), text_of(claimed));
  }
}

[[noreturn]] void fail_on_zeros(std::string_view what) {
  LEVIN_FAIL("graph.replay",
             "the graph of this text does not run on zeros ({}); call propagate_types with inputs "
             "on which it runs, or record the function again",
             printable(what));
}

void check_updates(const Graph& graph) {
  for (const Update& update : graph.updates()) {
    if (update.value == nullptr) continue;
    const ValueType &target = update.target->type(), &value = update.value->type();
    LEVIN_CHECK(
        target.kind == value.kind && target.dtype == value.dtype && target.sizes == value.sizes,
        "graph.replay", "{} of {} is {}, wanted {}; record the function again",
        update.is_gradient ? "the gradient" : "the new value", update.target->node().name(),
        text_of(value), text_of(target));
  }
}

}  // namespace

void check_claimed_types(const Graph& graph) {
  const KeptGenerators kept(graph);
  try {
    graph.lint();
    check_updates(graph);
    std::vector<at::Tensor> inputs;
    for (const Node* node : graph.find_nodes(Opcode::kPlaceholder)) {
      inputs.push_back(zeros_of(node->output().type()));
    }
    interpret(graph, inputs, {.observe = check_results});
  } catch (const Error& error) {
    if (error.id() == "graph.replay" || error.id() == "graph.state") throw;
    fail_on_zeros(error.text());
  } catch (const c10::Error& error) {
    fail_on_zeros(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail_on_zeros(error.what());
  }
}

}  // namespace levin::graph
