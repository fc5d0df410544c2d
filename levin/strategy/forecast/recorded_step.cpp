#include "levin/strategy/forecast/recorded_step.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/cost/timeline.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::forecast {
namespace {

using graph::Node;
using graph::Opcode;
using graph::Value;

constexpr size_t kNone = std::numeric_limits<size_t>::max();

bool is_view(const Node& node) {
  return node.opcode() == Opcode::kCallFunction && info_of(node).makes_view();
}

class StepReader {
 public:
  StepReader(const graph::Graph& graph, const Description& description)
      : graph_(graph), description_(description), timeline_(graph::timeline_of(graph)) {
    for (size_t i = 0; i < description.parameters.size(); ++i) {
      parameters_.emplace(description.parameters[i].name, i);
    }
    step_.state_bytes.resize(description.parameters.size());
    step_.cast_to.resize(description.parameters.size());
  }

  RecordedStep run() {
    find_state();
    find_values();
    find_gradients();
    add_moments();
    add_live();
    step_.tokens = tokens();
    return std::move(step_);
  }

 private:
  int64_t bytes_of(const Value& value) const {
    const auto block = timeline_.block_of.find(&value);
    return block == timeline_.block_of.end() ? 0 : timeline_.blocks[block->second].bytes;
  }

  /// The optimizer's tensors are named after the parameter, "exp_avg of net.0.weight".
  void find_state() {
    for (const Node* node : graph_.find_nodes(Opcode::kGetAttr)) {
      const std::string& name = node->name();
      if (const auto parameter = parameters_.find(name); parameter != parameters_.end()) {
        of_value_[&node->output()] = parameter->second;
        continue;
      }
      const size_t of = name.find(" of ");
      const auto owner =
          of == std::string::npos ? parameters_.end() : parameters_.find(name.substr(of + 4));
      if (owner != parameters_.end()) {
        step_.state_bytes[owner->second] += bytes_of(node->output());
      } else if (of != std::string::npos) {
        step_.other_state_bytes += bytes_of(node->output());
      } else {
        buffers_.insert(&node->output());
      }
    }
    for (const Node* node : graph_.find_nodes(Opcode::kPlaceholder)) {
      const bool is_input = !node->name().starts_with("gradient of ");
      if (is_input && !node->output().users().empty()) {
        step_.input_bytes += bytes_of(node->output());
      }
    }
    for (const graph::Update& update : graph_.updates()) {
      step_.writes_buffers |= !update.is_gradient && buffers_.contains(update.target);
    }
  }

  /// Views of a parameter, and autocast's copies of it, stand for it.
  void find_values() {
    std::map<size_t, bool> is_read_otherwise;
    for (const Node* node : timeline_.nodes) {
      if (node->opcode() != Opcode::kCallFunction) continue;
      for (const Value* input : node->inputs()) {
        const auto parameter = of_value_.find(input);
        if (parameter == of_value_.end()) continue;
        const size_t number = parameter->second;
        if (is_view(*node)) {
          for (const Value* output : node->outputs()) of_value_[output] = number;
        } else if (node->target() == "aten::_to_copy" &&
                   c10::isReducedFloatingType(node->output().type().dtype)) {
          of_cast_[&node->output()] = number;
          step_.cast_to[number] = node->output().type().dtype;
        } else if (info_of(*node).written.empty()) {
          is_read_otherwise[number] = true;
        }
      }
      for (const Value* input : node->inputs()) {
        const auto cast = of_cast_.find(input);
        if (cast == of_cast_.end() || !is_view(*node)) continue;
        for (const Value* output : node->outputs()) of_cast_[output] = cast->second;
      }
    }
    for (const auto& [number, reads] : is_read_otherwise) {
      if (reads) step_.cast_to[number].reset();
    }
  }

  void find_gradients() {
    for (const graph::Update& update : graph_.updates()) {
      if (!update.is_gradient || update.value == nullptr) continue;
      const auto parameter = of_value_.find(update.target);
      const auto block = timeline_.block_of.find(update.value);
      if (parameter == of_value_.end() || block == timeline_.block_of.end()) continue;
      gradient_blocks_[block->second] = parameter->second;
    }
    LEVIN_CHECK(!gradient_blocks_.empty(), "strategy.forecast.step",
                "the recorded step gives no parameter of the description a gradient; record a step "
                "of training, with `levin plan`");
  }

  void add_moments() {
    const graph::DeviceDescription no_device = {
        .flops_per_s = 1, .half_flops_per_s = 1, .bytes_per_s = 1};
    std::unordered_map<const Node*, graph::NodeCost> costs;
    for (const graph::NodeCost& cost : graph::cost_of(graph_, no_device).nodes) {
      costs.emplace(cost.node, cost);
    }
    const std::multimap<size_t, size_t> arrivals = arrivals_by_place();
    moment_of_.assign(timeline_.nodes.size(), 0);
    size_t last_arrival = 0;
    for (size_t place = 0; place < timeline_.nodes.size(); ++place) {
      const Node& node = *timeline_.nodes[place];
      moment_of_[place] = step_.moments.size();
      const auto cost = costs.find(&node);
      if (cost == costs.end()) continue;
      Moment& moment = step_.moments.emplace_back();
      moment.flops = cost->second.flops;
      moment.bytes = cost->second.bytes;
      moment.is_half = std::ranges::any_of(node.outputs(), [](const Value* output) {
        return output->type().kind == graph::ValueKind::kTensor &&
               c10::isReducedFloatingType(output->type().dtype);
      });
      step_.flops += moment.flops;
      add_reads(node, moment);
      const auto [first, end] = arrivals.equal_range(place);
      for (auto each = first; each != end; ++each) moment.arrivals.push_back(each->second);
      if (!moment.arrivals.empty()) last_arrival = step_.moments.size();
      const bool begins_backward = node.target() == "aten::ones_like" && step_.backward == 0;
      if (begins_backward) step_.backward = step_.moments.size() - 1;
    }
    step_.update = last_arrival;
  }

  void add_reads(const Node& node, Moment& moment) const {
    for (const Value* input : node.inputs()) {
      for (const auto* values : {&of_value_, &of_cast_}) {
        const auto parameter = values->find(input);
        if (parameter == values->end()) continue;
        if (std::ranges::find(moment.reads, parameter->second) == moment.reads.end()) {
          moment.reads.push_back(parameter->second);
        }
      }
    }
  }

  /// A gradient is complete with the operator that makes it or adds the last part to it: that of a
  /// parameter that is used twice is a sum. Operators that clip it come later. By place of the
  /// operator.
  std::multimap<size_t, size_t> arrivals_by_place() const {
    std::unordered_map<size_t, size_t> places;
    for (size_t place = 0; place < timeline_.nodes.size(); ++place) {
      const Node& node = *timeline_.nodes[place];
      if (node.opcode() != Opcode::kCallFunction) continue;
      for (const Value* output : node.outputs()) {
        const auto block = timeline_.block_of.find(output);
        if (block == timeline_.block_of.end() || !gradient_blocks_.contains(block->second))
          continue;
        if (adds_tensors(node) || !places.contains(block->second)) places[block->second] = place;
      }
    }
    std::multimap<size_t, size_t> arrivals;
    for (const auto& [block, place] : places) arrivals.emplace(place, gradient_blocks_.at(block));
    return arrivals;
  }

  static bool adds_tensors(const Node& node) {
    if (node.target() != "aten::add_.Tensor" && node.target() != "aten::add.Tensor") return false;
    const graph::Values inputs = node.inputs();
    return inputs.size() == 2 && inputs[0]->type().sizes == inputs[1]->type().sizes;
  }

  /// Bytes alive with each operator, by the differences at which blocks begin and end.
  void add_live() {
    const size_t count = step_.moments.size();
    std::vector<int64_t> live(count + 1), casts(count + 1);
    std::unordered_set<size_t> cast_blocks;
    for (const auto& [value, parameter] : of_cast_) {
      const auto block = timeline_.block_of.find(value);
      if (block != timeline_.block_of.end()) cast_blocks.insert(block->second);
    }
    for (size_t i = 0; i < timeline_.blocks.size(); ++i) {
      const graph::Timeline::Block& block = timeline_.blocks[i];
      if (block.is_owned || block.bytes <= 0 || gradient_blocks_.contains(i)) continue;
      const size_t first = moment_of_[block.first];
      const size_t last = block.last == kNone ? count - 1 : moment_of_[block.last];
      live[first] += block.bytes;
      live[std::min(last + 1, count)] -= block.bytes;
      if (!cast_blocks.contains(i)) continue;
      casts[first] += block.bytes;
      casts[std::min(last + 1, count)] -= block.bytes;
    }
    int64_t live_now = 0, casts_now = 0;
    for (size_t i = 0; i < count; ++i) {
      step_.moments[i].live = live_now += live[i];
      step_.moments[i].casts = casts_now += casts[i];
    }
  }

  int64_t tokens() const {
    int64_t most = 0;
    for (const Node* node : graph_.find_nodes(Opcode::kPlaceholder)) {
      const graph::ValueType& type = node->output().type();
      if (type.dtype != at::kLong || type.sizes.size() != 2) continue;
      most = std::max(most, type.sizes[0] * type.sizes[1]);
    }
    return most;
  }

  const graph::Graph& graph_;
  const Description& description_;
  graph::Timeline timeline_;
  RecordedStep step_;
  std::unordered_map<std::string, size_t> parameters_;
  std::unordered_map<const Value*, size_t> of_value_;  ///< parameters, and views of them
  std::unordered_map<const Value*, size_t> of_cast_;
  std::unordered_set<const Value*> buffers_;
  std::unordered_map<size_t, size_t> gradient_blocks_;
  std::vector<size_t> moment_of_;  ///< by place of a node: the operator that is it or comes next
};

}  // namespace

RecordedStep recorded_step(const graph::Graph& graph, const Description& description) {
  return StepReader(graph, description).run();
}

}  // namespace levin::forecast
