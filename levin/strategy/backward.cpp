#include "levin/strategy/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "levin/base/check.h"

namespace levin {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);

bool owns_its_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.use_count() == 1 && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense() &&
         !tensor._is_zerotensor() && !at::isTensorSubclassLike(tensor);
}

// In the order of torch::autograd::InputBuffer: what came first stands left, but a dense gradient
// before a sparse one, which the CPU cannot add to.
void accumulate(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.is_sparse() || sum.is_sparse_csr()) {
    sum = owns_its_memory(gradient) ? gradient.add_(sum) : gradient + sum;
  } else if (owns_its_memory(sum) && !at::isTensorSubclassLike(gradient)) {
    sum.add_(gradient);
  } else {
    sum = sum + gradient;
  }
}

// XLA's operators are recorded where they are called; it has no streams that the engine sees to.
bool is_of_calling_thread(at::Device device) { return device.is_cpu() || device.is_xla(); }

bool is_of_calling_thread(const Node& node) {
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (!is_of_calling_thread(node.input_metadata(i).device())) return false;
  }
  return true;
}

variable_list call(Node& node, variable_list gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  node.will_release_variables();
  // A gradient that nobody else holds may be kept without a copy, so none is held in vain.
  const variable_list held = node.post_hooks().empty() ? variable_list() : gradients;
  variable_list results = node(std::move(gradients));
  torch::autograd::validate_outputs(node.next_edges(), results,
                                    [&node](const std::string& message) {
                                      return "Function " + node.name() + " returned an " + message;
                                    });
  for (const auto& hook : node.post_hooks()) results = (*hook)(results, held);
  node.release_variables();
  return results;
}

/// One walk from the loss to the leaves.
class Walk {
 public:
  explicit Walk(const NodePointer& root) { task_of(root); }

  /// False when the graph needs LibTorch's engine.
  bool plan() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Node& node = *tasks_[i].node;
      if (!is_of_calling_thread(node)) return false;
      tasks_[i].first_target = targets_.size();
      for (const Edge& edge : node.next_edges()) {
        const size_t target = edge.is_valid() ? task_of(edge.function) : kNowhere;
        if (target != kNowhere) ++tasks_[target].missing;
        targets_.push_back(target);
      }
      tasks_[i].num_targets = targets_.size() - tasks_[i].first_target;
    }
    return true;
  }

  /// In the order of run(), without what adds to leaves.
  std::vector<Node*> nodes() const {
    std::vector<Node*> all;
    for (const Task& task : tasks_) {
      if (task.node->num_outputs() > 0) all.push_back(task.node.get());
    }
    std::ranges::sort(all, std::greater(), [](const Node* node) { return node->sequence_nr(); });
    return all;
  }

  void run(uint32_t slot, at::Tensor gradient) {
    deliver(tasks_.front(), slot, std::move(gradient));
    make_ready(0);
    while (!ready_.empty()) {
      Task& task = next_ready();
      variable_list gradients = call(*task.node, std::move(task.gradients));
      check_edges(task);
      for (size_t i = 0; i < gradients.size(); ++i) {
        const size_t target = targets_[task.first_target + i];
        if (target == kNowhere) continue;
        deliver(tasks_[target], task.node->next_edge(i).input_nr, std::move(gradients[i]));
        if (--tasks_[target].missing == 0) make_ready(target);
      }
    }
  }

 private:
  struct Task {
    NodePointer node;
    size_t first_target = 0;  ///< in targets_: where its results go, edge by edge
    size_t num_targets = 0;
    int64_t missing = 0;  ///< edges that lead here and were not walked yet
    variable_list gradients = {};
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  size_t task_of(const NodePointer& node) {
    const auto [place, is_new] = places_.emplace(node.get(), tasks_.size());
    if (is_new) tasks_.push_back({.node = node});
    return place->second;
  }

  void check_edges(const Task& task) const {
    const auto& edges = task.node->next_edges();
    bool as_planned = edges.size() == task.num_targets;
    for (size_t i = 0; as_planned && i < edges.size(); ++i) {
      const size_t target = targets_[task.first_target + i];
      as_planned = edges[i].function == (target == kNowhere ? NodePointer() : tasks_[target].node);
    }
    LEVIN_CHECK(as_planned, "strategy.backward.graph",
                "the edges of {} changed during backward, but backward needs the graph of the "
                "forward pass; change the graph before backward",
                task.node->name());
  }

  static void deliver(Task& task, uint32_t slot, at::Tensor gradient) {
    if (task.gradients.empty()) task.gradients.resize(task.node->num_inputs());
    accumulate(task.gradients.at(slot), std::move(gradient));
  }

  // The engine's order, which decides in which order gradients are summed: what the forward pass
  // computed last goes first, leaves before all.
  auto runs_later() const {
    return [this](size_t left, size_t right) {
      return tasks_[left].node->sequence_nr() < tasks_[right].node->sequence_nr();
    };
  }

  void make_ready(size_t task) {
    ready_.push_back(task);
    std::push_heap(ready_.begin(), ready_.end(), runs_later());
  }

  Task& next_ready() {
    std::pop_heap(ready_.begin(), ready_.end(), runs_later());
    Task& task = tasks_[ready_.back()];
    ready_.pop_back();
    return task;
  }

  std::vector<Task> tasks_;  ///< the loss's first
  std::vector<size_t> targets_;
  std::vector<size_t> ready_;  ///< a heap
  ska::flat_hash_map<const Node*, size_t> places_;
};

bool is_plain_scalar(const at::Tensor& loss) {
  return loss.defined() && is_of_calling_thread(loss.device()) && loss.layout() == at::kStrided &&
         loss.numel() == 1 && loss.requires_grad() && !at::isTensorSubclassLike(loss);
}

}  // namespace

void backward(const at::Tensor& loss) { backward_as_planned(loss, {}); }

void backward_as_planned(const at::Tensor& loss, const BackwardPlanned& planned) {
  if (!is_plain_scalar(loss) || torch::autograd::AnomalyMode::is_enabled()) return loss.backward();
  const Edge edge = torch::autograd::impl::gradient_edge(loss);
  Walk walk(edge.function);
  if (!walk.plan()) return loss.backward();
  if (planned) planned(walk.nodes());
  const at::AutoGradMode no_grad(false);
  walk.run(edge.input_nr, at::ones_like(loss));
}

}  // namespace levin
