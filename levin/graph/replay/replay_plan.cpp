// Turns a graph into a ReplayProgram: its inputs and its results.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/replay/replay_planner_impl.h"

namespace levin::graph {
namespace {

bool lies_in_place(const at::Tensor& value, const at::Tensor& target) {
  return value.has_storage() && value.storage().is_alias_of(target.storage()) &&
         value.storage_offset() == target.storage_offset() && value.sizes() == target.sizes() &&
         value.strides() == target.strides();
}

}  // namespace

BoundState::BoundState(std::string name, const at::Tensor& tensor)
    : name(std::move(name)),
      tensor(tensor),
      data(tensor.const_data_ptr()),
      memory_(tensor.storage().data()),
      offset_(tensor.storage_offset()) {}

ReplayProgram ReplayPlanner::plan() {
  program_.matmul_settings = MatmulSettings::now();
  reads_left_ = graph_.host_reads().size();
  bind();
  find_writes_in_place();
  for (const Node& node : graph_.nodes()) {
    memory_.begin_node();
    if (node.opcode() == Opcode::kCallFunction) add(node);
  }
  finish();
  program_.report.num_exchanged = memory_.lay_out_sent(options_.exchange_memory);
  program_.arenas = memory_.lay_out(program_.report.arena_bytes, program_.report.needed_bytes);
  return std::move(program_);
}

void ReplayPlanner::bind() {
  for (const Node* node : graph_.find_nodes(Opcode::kPlaceholder)) bind_input(*node);
  std::vector<const Value*> states;
  for (const Node* node : graph_.find_nodes(Opcode::kGetAttr)) {
    bind_state(*node);
    if (memory_.holds(&node->output())) states.push_back(&node->output());
  }
  // State tensors that have bytes in common are not written to.
  const std::vector<const Value*> shared = memory_.overlapping(states);
  for (const Update& update : graph_.updates()) {
    const bool is_shared = std::ranges::count(shared, update.target) > 0;
    if (update.is_gradient || is_shared || !memory_.holds(update.target)) continue;
    memory_.allow_writes(*update.target);
  }
}

void ReplayPlanner::bind_input(const Node& node) {
  const Value& value = node.output();
  input_numbers_[&value] = program_.inputs.size();
  BoundInput& input = program_.inputs.emplace_back(BoundInput{node.name(), value.type(), {}});
  if (value.users().empty()) return;
  const PlacedTensor placed = memory_.make(value.type(), MemoryKind::kGiven);
  input.tensor = placed.tensor;
  targets_[&value] = placed.tensor;
  memory_.store(value, placed);
}

void ReplayPlanner::bind_state(const Node& node) {
  const Value& value = node.output();
  const bool is_unused = value.users().empty();
  LEVIN_CHECK(node.tensor().defined() || is_unused, "graph.state",
              "no tensor is bound to {}; bind one, or load the graph with its state", node.name());
  targets_[&value] = node.tensor();
  if (is_unused) return;
  // A tensor of its own, which autograd knows nothing of.
  const at::Tensor tensor = node.tensor().detach();
  LEVIN_CHECK(ValueType::of(tensor) == value.type(), "graph.replay",
              "{} differs from the recorded tensor; trace the function again", node.name());
  program_.states.emplace_back(node.name(), node.tensor());
  memory_.store(value, memory_.keep(tensor, MemoryKind::kGiven));
}

void ReplayPlanner::finish() {
  memory_.begin_node();
  for (const Value* value : graph_.outputs()) {
    const bool is_there = value != nullptr && memory_.holds(value);
    program_.outputs.push_back(is_there ? memory_.at(*value).tensor : at::Tensor());
    if (is_there) memory_.use_at_end(*value);
  }
  for (const Update& update : graph_.updates()) add_update(update);
}

void ReplayPlanner::add_update(const Update& update) {
  if (update.value == nullptr || !memory_.holds(update.value)) return;
  memory_.use_at_end(*update.value);
  const at::Tensor value = memory_.at(*update.value).tensor;
  const auto target = targets_.find(update.target);
  if (target == targets_.end() || !target->second.defined()) return;
  const auto input = input_numbers_.find(update.target);
  if (!update.is_gradient && lies_in_place(value, target->second)) {
    if (input != input_numbers_.end()) program_.inputs[input->second].is_written = true;
    return;
  }
  const MemoryKind kind = memory_.kind(*update.value);
  const bool is_kept =
      kind == MemoryKind::kGiven ||
      (update.is_gradient && (kind == MemoryKind::kConstant || input != input_numbers_.end()));
  program_.updates.push_back({target->second,
                              input == input_numbers_.end() ? SIZE_MAX : input->second, value,
                              update.is_gradient, is_kept});
}

ReplayProgram plan_replay(const Graph& graph, std::optional<c10::Device> device,
                          const ReplayOptions& options) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return ReplayPlanner(graph, device, options).plan();
}

}  // namespace levin::graph
