// A step: all that is recorded until its end is one program.
#include <algorithm>
#include <set>
#include <utility>

#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// One of the step's inputs or of a parameter.
bool is_gradient(const at::Tensor& tensor, const graph::RecordedCall& call) {
  const auto is_its = [&](const at::Tensor& of) {
    return of.defined() && of.is_leaf() && of.grad().defined() && of.grad().is_alias_of(tensor);
  };
  return std::ranges::any_of(call.inputs, is_its) ||
         std::ranges::any_of(call.state, is_its, &NamedTensor::tensor);
}

/// Returns how many of the tensors share the tensor's memory.
size_t num_held(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  std::set<const c10::TensorImpl*> holders;
  for (const at::Tensor& other : tensors) {
    if (other.defined() && other.is_alias_of(tensor)) holders.insert(other.unsafeGetTensorImpl());
  }
  return holders.size();
}

}  // namespace

/// Views; and what was there before, as set_data() gives the user's tensor other memory. Within a
/// step the recorder is to know the tensor itself, whose gradient the step may leave.
bool Recording::is_met_by_memory(const at::Tensor& argument) {
  const Contents& contents = Contents::of(argument);
  if (!contents.is_base(argument)) return true;
  if (contents.buffers.empty()) return false;
  if (!is_in_step_) return true;
  const auto is_its = [&](const at::Tensor& input) {
    return input.defined() && input.has_storage() && input.is_alias_of(argument);
  };
  // The holders of an input are counted.
  if (std::ranges::any_of(step_inputs_, is_its)) return false;
  const auto [known, is_new] = step_memory_.try_emplace(argument.unsafeGetTensorImpl());
  if (is_new) known->second = {argument, contents.base()};
  return !known->second.memory.is_alias_of(argument);
}

Binding Recording::step_binding(const graph::Graph& graph) const {
  std::unordered_map<const graph::Node*, const at::Tensor*> tensors;
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() == graph::Opcode::kPlaceholder)
      tensors[&node] = &step_inputs_[tensors.size()];
  }
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() != graph::Opcode::kGetAttr) continue;
    const auto known = step_memory_.find(node.tensor().unsafeGetTensorImpl());
    if (known != step_memory_.end()) tensors[&node] = &known->second.memory;
  }
  return [tensors = std::move(tensors)](const graph::Node& node) -> const at::Tensor& {
    const auto found = tensors.find(&node);
    return found == tensors.end() ? node.tensor() : *found->second;
  };
}

void Recording::begin_step(const std::vector<at::Tensor>& inputs) {
  is_in_step_ = true;
  step_inputs_.clear();
  for (const at::Tensor& input : inputs) {
    const bool is_memory = input.defined() && input.is_xla() && Contents::of(input).is_base(input);
    step_inputs_.push_back(is_memory ? Contents::of(input).base() : input);
  }
  step_memory_.clear();
  step_trouble_.clear();
}

void Recording::refuse_step(const std::string& reason) {
  if (step_trouble_.empty()) step_trouble_ = reason;
}

void Recording::forget_step() {
  step_inputs_.clear();
  step_memory_.clear();
}

at::Tensor Recording::with_other_memory() const {
  const auto found = std::ranges::find_if(step_memory_, [](const auto& entry) {
    return !entry.second.tensor.is_alias_of(entry.second.memory);
  });
  return found == step_memory_.end() ? at::Tensor() : found->second.tensor;
}

std::string Recording::end_step() {
  const std::scoped_lock lock(owner_.mutex);
  is_in_step_ = false;
  return std::exchange(step_trouble_, "");
}

/// Tensors that the step returned, and all others of it that are there to be seen, are results of its program:
/// first what it left with somebody, then gradients.
graph::Graph Recording::run_step(const graph::RecordedCall& call,
                                 const std::vector<at::Tensor>& values,
                                 std::vector<graph::KeptTensor>& kept) {
  std::vector<Contents*> targets;
  for (const at::Tensor& value : values) {
    Contents* contents = value.defined() && value.is_xla() ? &Contents::of(value) : nullptr;
    const bool is_own = contents != nullptr && contents->is_pending && contents->buffers.empty() &&
                        contents->is_base(value) &&
                        std::ranges::find(targets, contents) == targets.end();
    targets.push_back(is_own ? contents : nullptr);
  }
  // A value that somebody else has too is kept, as an output of its own.
  std::vector<at::Tensor> seen, copies;
  for (size_t i = 0; i < values.size(); ++i) {
    if (targets[i] == nullptr || values[i].storage().use_count() <= num_held(values, values[i])) {
      continue;
    }
    seen.push_back(values[i]);
    copies.push_back(values[i].clone());
    targets.push_back(&Contents::of(copies.back()));
  }
  const size_t num_copies = copies.size();
  std::vector<at::Tensor> others = pending(targets);
  targets.resize(values.size() + num_copies);
  const auto gradients = std::ranges::stable_partition(
      others, [&](const at::Tensor& tensor) { return !is_gradient(tensor, call); });
  const auto num_kept = num_copies + static_cast<size_t>(gradients.begin() - others.begin());
  std::vector<at::Tensor> results = values;
  results.insert(results.end(), copies.begin(), copies.end());
  for (const at::Tensor& tensor : others) {
    seen.push_back(tensor);
    results.push_back(tensor);
    targets.push_back(&Contents::of(tensor));
  }
  graph::Graph graph = recorder().finish(results);
  recorder_.reset();
  const graph::Values outputs = graph.outputs();
  for (size_t i = 0; i < num_kept; ++i) {
    const graph::Node& node = outputs[values.size() + i]->node();
    const std::string place = node.source().empty() ? "" : " in " + node.source();
    kept.push_back({.storage = seen[i].storage().getWeakStorageImpl(),
                    .sizes = at::DimVector(seen[i].sizes()),
                    .strides = at::DimVector(seen[i].strides()),
                    .dtype = seen[i].scalar_type(),
                    .made_by = std::string(node.target()) + place});
  }
  graph.eliminate_dead_code();
  run(graph, targets, step_binding(graph));
  numbers_.clear();
  return graph;
}

}  // namespace levin::xla
