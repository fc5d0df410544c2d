#include "levin/module/activation_checkpoint.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstring>
#include <optional>
#include <set>
#include <unordered_set>

#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/module/random_operators_impl.h"

namespace levin::detail {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// The conditions of a call of the function, and its results.
struct Segment : torch::CustomClassHolder {
  CheckpointedFunction function;
  size_t num_inputs = 0;
  std::optional<State> random;  ///< none: it drew no numbers
  at::DeviceType device = at::kCPU;
  Autocast autocast;
  std::vector<std::vector<int64_t>> shapes;  ///< shapes of the outputs
  variable_list outputs;                     ///< until the graph has them
  std::vector<bool> differentiable;          ///< the outputs that have a gradient
};

/// Shares memory with the inputs, and none of their graph.
variable_list detached(const variable_list& inputs) {
  variable_list copies;
  for (const at::Tensor& input : inputs) {
    at::Tensor& copy = copies.emplace_back(input);
    if (!input.defined()) continue;
    copy = input.detach();
    copy.set_requires_grad(input.requires_grad());
  }
  return copies;
}

using Edges = std::set<std::pair<const Node*, uint32_t>>;

Edges edges_of(const variable_list& tensors) {
  Edges edges;
  for (const at::Tensor& tensor : tensors) {
    const Edge edge = torch::autograd::impl::gradient_edge(tensor);
    edges.emplace(edge.function.get(), edge.input_nr);
  }
  return edges;
}

/// The dependencies of a graph other than its inputs: leaves, and tensors that were computed before
/// it, whose edges is_outside() knows.
class Dependencies {
 public:
  using Outside = std::function<bool(const Edge&)>;

  Dependencies(const variable_list& outputs, const variable_list& inputs, Outside is_outside)
      : is_outside_(std::move(is_outside)) {
    for (const at::Tensor& input : inputs) {
      if (input.defined() && input.requires_grad()) own_.insert(input.unsafeGetTensorImpl());
    }
    for (const at::Tensor& output : outputs) {
      if (output.defined() && output.requires_grad()) {
        visit(torch::autograd::impl::gradient_edge(output));
      }
    }
    while (!open_.empty()) {
      Node* node = open_.back();
      open_.pop_back();
      for (const Edge& edge : node->next_edges()) visit(edge);
    }
  }

  const variable_list& tensors() const { return tensors_; }

 private:
  void visit(const Edge& edge) {
    if (!edge.is_valid() || !seen_.emplace(edge.function.get(), edge.input_nr).second) return;
    Node* node = edge.function.get();
    if (const auto* leaf = dynamic_cast<AccumulateGrad*>(node)) {
      if (!own_.contains(leaf->variable.unsafeGetTensorImpl())) tensors_.push_back(leaf->variable);
    } else if (is_outside_(edge)) {
      // Stands for a tensor that the function captured: the edge is all that a gradient needs.
      tensors_.push_back(torch::autograd::make_variable(at::empty({0}), edge));
    } else if (nodes_.insert(node).second) {
      open_.push_back(node);
    }
  }

  Outside is_outside_;
  std::unordered_set<const c10::TensorImpl*> own_;
  Edges seen_;
  std::unordered_set<const Node*> nodes_;
  std::vector<Node*> open_;
  variable_list tensors_;
};

/// The generators as they were, for the time of the object.
class RandomScope {
 public:
  explicit RandomScope(const std::optional<State>& state) {
    if (!state) return;
    before_ = random_state();
    load_random_state(*state);
  }
  ~RandomScope() {
    if (before_) load_random_state(*before_);
  }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  std::optional<State> before_;
};

/// Makes ends of the tensors that a function captured, for the time of the object: gradients go no
/// further than to them, and the user's hooks run where gradients arrive, not on the way there.
class CutOff {
 public:
  explicit CutOff(const variable_list& tensors) {
    for (const at::Tensor& tensor : tensors) {
      Node* node = torch::autograd::impl::gradient_edge(tensor).function.get();
      if (!seen_.insert(node).second) continue;
      exchange(taken_.emplace_back(Taken{.node = node}));
    }
  }
  ~CutOff() {
    for (Taken& taken : taken_) exchange(taken);
  }
  CutOff(const CutOff&) = delete;
  CutOff& operator=(const CutOff&) = delete;

 private:
  struct Taken {
    Node* node = nullptr;
    std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>> hooks = {};
    torch::autograd::edge_list edges = {};
  };
  // Not by set_next_edges, which gives the node a new number: the edges come back as they were.
  static void exchange(Taken& taken) {
    taken.hooks.swap(taken.node->tensor_pre_hooks());
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    taken.edges.swap(const_cast<torch::autograd::edge_list&>(taken.node->next_edges()));
  }

  std::unordered_set<Node*> seen_;
  std::vector<Taken> taken_;
};

variable_list call_again(const Segment& segment, const variable_list& inputs) {
  const RandomScope random(segment.random);
  const AutocastScope autocast(segment.device, segment.autocast);
  const at::AutoGradMode grad(true);
  variable_list outputs = segment.function(inputs);
  LEVIN_CHECK(outputs.size() == segment.shapes.size(), "module.checkpoint.differs",
              "the function returned {} outputs in forward and {} when recomputed in backward; it "
              "must compute the same from the same inputs",
              segment.shapes.size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    LEVIN_CHECK(outputs[i].sizes() == segment.shapes[i] &&
                    outputs[i].requires_grad() >= segment.differentiable[i],
                "module.checkpoint.differs",
                "output {} had shape {} in forward and {} when recomputed in backward{}; the "
                "function must compute the same from the same inputs",
                i, c10::str(at::IntArrayRef(segment.shapes[i])), c10::str(outputs[i].sizes()),
                outputs[i].requires_grad() ? "" : ", and no gradient");
  }
  return outputs;
}

/// inputs: the function's, then what it depends on beside them.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Segment>& segment,
                               at::TensorList inputs) {
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    context->save_for_backward(inputs.vec());
    variable_list outputs = std::exchange(segment->outputs, {});
    variable_list constants;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!segment->differentiable[i]) constants.push_back(outputs[i]);
    }
    context->mark_non_differentiable(constants);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    LEVIN_CHECK(!at::GradMode::is_enabled(), "module.checkpoint.twice",
                "backward with create_graph=true reached an activation_checkpoint, which does not "
                "support it; use that block without activation_checkpoint");
    const auto capsule = context->saved_data["segment"].toCapsule();
    const auto& segment = static_cast<const Segment&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const auto first_captured = saved.begin() + static_cast<std::ptrdiff_t>(segment.num_inputs);
    const variable_list inputs = detached({saved.begin(), first_captured});
    variable_list wanted(first_captured, saved.end());
    const variable_list outputs = call_again(segment, inputs);
    const Edges known = edges_of(wanted);
    const auto is_known = [&](const Edge& edge) {
      return known.contains({edge.function.get(), edge.input_nr});
    };
    LEVIN_CHECK(edges_of(Dependencies(outputs, inputs, is_known).tensors()) == known,
                "module.checkpoint.differs",
                "the function used other parameters or captured tensors when recomputed in "
                "backward; it must compute the same from the same inputs");

    variable_list roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !segment.differentiable[i]) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    const CutOff cut_off(wanted);
    std::vector<size_t> places(wanted.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = 1 + segment.num_inputs + i;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
      wanted.push_back(inputs[i]);
      places.push_back(1 + i);
    }
    variable_list results(1 + saved.size());  // none for the segment
    if (roots.empty()) return results;
    variable_list found = torch::autograd::grad(roots, wanted, root_gradients, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) results[places[i]] = std::move(found[i]);
    return results;
  }
};

at::DeviceType device_of(const variable_list& inputs) {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) return input.device().type();
  }
  return at::kCPU;
}

/// Not by at::equal: a step that is recorded would take it for a value that the host reads, another one
/// in each step.
bool same(const State& left, const State& right) {
  const auto equal = [](const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == b.nbytes() &&
           std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  };
  if (!equal(left.tensor("cpu"), right.tensor("cpu"))) return false;
  if (!left.contains("cuda")) return true;
  for (const auto& [number, value] : left.child("cuda").values()) {
    if (!equal(left.child("cuda").tensor(number), right.child("cuda").tensor(number))) return false;
  }
  return true;
}

}  // namespace

// The function is called with its graph, which says on what it depends, and the graph is dropped.
std::vector<at::Tensor> activation_checkpoint(CheckpointedFunction function,
                                              const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  auto segment = c10::make_intrusive<Segment>();
  segment->num_inputs = inputs.size();
  segment->device = device_of(inputs);
  segment->autocast = current_autocast(segment->device);
  segment->autocast.cache = false;  // a cast that was made outside would be none of the second call
  segment->random = random_state();
  const uint64_t start = at::sequence_number::peek();

  const variable_list given = detached(inputs);
  variable_list outputs = [&] {
    const AutocastScope autocast(segment->device, segment->autocast);
    // XLA draws when a program runs, so that no generator tells and the second call would draw others.
    std::optional<RandomOperators> draws;
    if (segment->device == at::kXLA) draws.emplace();
    variable_list results = function(given);
    LEVIN_CHECK(!draws || !draws->were_called(), "module.checkpoint.random",
                "the function draws random numbers (for example dropout), and on XLA the "
                "recomputation in backward would draw different ones; remove dropout from "
                "checkpointed blocks, or use the block without activation_checkpoint");
    return results;
  }();
  if (same(*segment->random, random_state())) segment->random.reset();
  variable_list all = inputs;
  {
    const Dependencies dependencies(
        outputs, given, [&](const Edge& edge) { return edge.function->sequence_nr() < start; });
    all.insert(all.end(), dependencies.tensors().begin(), dependencies.tensors().end());
  }
  for (at::Tensor& output : outputs) {
    segment->shapes.push_back(output.sizes().vec());
    segment->differentiable.push_back(output.requires_grad());
    output = output.detach();
  }
  segment->function = std::move(function);
  segment->outputs = std::move(outputs);
  return Checkpointed::apply(segment, at::TensorList(all));
}

}  // namespace levin::detail
