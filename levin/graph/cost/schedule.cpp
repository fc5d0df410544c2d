#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "levin/graph/cost/schedule_impl.h"
#include "levin/graph/interpret/in_place_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();

int64_t storage_bytes(const ValueType& type) {
  if (type.kind != ValueKind::kTensor) return -1;
  const auto itemsize = static_cast<size_t>(c10::elementSize(type.dtype));
  return static_cast<int64_t>(at::detail::computeStorageNbytes(type.sizes, type.strides, itemsize));
}

/// In training it writes only running statistics, and its results do not depend on these.
bool is_batch_norm_in_training(const Node& node) {
  if (info_of(node).op.schema().name() != "aten::native_batch_norm") return false;
  const c10::IValue* training = constant_of(node.arguments()[5]);
  return training != nullptr && training->isBool() && training->toBool();
}

/// Operators other than ATen's may do more than their schema says: some reach other ranks.
bool is_deterministic(const OperatorInfo& info) {
  return info.name.starts_with("aten::") && !info.is_random && !info.is_host_read &&
         !info.makes_unwritten;
}

/// The length of a list shows only where it is the single result.
bool has_known_results(const OperatorInfo& info) {
  const auto& returns = info.op.schema().returns();
  return returns.size() <= 1 || std::ranges::none_of(returns, [](const c10::Argument& result) {
           return result.type()->isSubtypeOf(*c10::ListType::ofTensors());
         });
}

/// As a replay does them. State may be written where the graph updates it.
InPlaceWrites writes_in_place(const Graph& graph) {
  std::unordered_set<const Value*> updated;
  for (const Update& update : graph.updates()) {
    if (!update.is_gradient) updated.insert(update.target);
  }
  return in_place_writes(graph, [&](const Value& whole) {
    const Node& node = whole.node();
    const bool is_state = node.opcode() != Opcode::kCallFunction;
    return is_state ? updated.contains(&whole) : !node.inputs().empty() || !info_of(node).is_pure();
  });
}

/// Memory without contents that operators write before anybody reads it.
bool is_overwritten_first(const Node& node) {
  if (!info_of(node).makes_unwritten || !node.inputs().empty()) return false;
  const Value& value = node.output();
  return std::ranges::all_of(value.users(), [&](const Node* user) {
    if (user->opcode() != Opcode::kCallFunction || !info_of(*user).overwrites) return false;
    const OperatorInfo& info = info_of(*user);
    for (size_t i = 0; i < info.num_parameters(); ++i) {
      if (std::ranges::count(info.written, i) > 0) continue;
      bool is_read = false;
      for_each_value(user->arguments()[i], [&](const Value& read) { is_read |= &read == &value; });
      if (is_read) return false;
    }
    return true;
  });
}

class Indexer {
 public:
  explicit Indexer(const IndexOptions& options) : options_(options) {}

  std::vector<IndexedNode> run(const Graph& graph) {
    if (options_.in_place) in_place_ = writes_in_place(graph);
    for (const Node& node : graph.nodes()) {
      numbers_[&node] = nodes_.size();
      IndexedNode& indexed = nodes_.emplace_back(IndexedNode{.node = &node});
      for (const Value* value : node.outputs()) {
        indexed.bytes.push_back(storage_bytes(value->type()));
        indexed.is_read |= !value->users().empty();
      }
      add_reads(node, indexed);
      if (node.opcode() == Opcode::kCallFunction) {
        add_call(node, indexed);
      } else {
        indexed.is_owned = true;
        indexed.num_results = indexed.bytes.size();
      }
      indexed.root = indexed.is_view ? nodes_[indexed.reads.front().node].root : nodes_.size() - 1;
    }
    return std::move(nodes_);
  }

 private:
  static size_t number_of(const Value& value) {
    const auto& outputs = value.node().outputs();
    return static_cast<size_t>(std::ranges::find(outputs, &value) - outputs.begin());
  }

  void add_reads(const Node& node, IndexedNode& indexed) {
    const bool is_call = node.opcode() == Opcode::kCallFunction;
    const size_t count = is_call ? info_of(node).num_parameters() : node.arguments().size();
    for (size_t i = 0; i < count; ++i) {
      const bool is_written = is_call && std::ranges::count(info_of(node).written, i) > 0;
      for_each_value(node.arguments()[i], [&](const Value& value) {
        const bool is_in_place = is_written && in_place_.written.contains(&value);
        indexed.reads.push_back(
            {numbers_.at(&value.node()), number_of(value), is_written, is_in_place});
      });
    }
  }

  bool writes_state(const IndexedNode& indexed) const {
    return std::ranges::any_of(indexed.reads, [&](const IndexedNode::Read& read) {
      return read.is_written && nodes_[nodes_[read.node].root].is_owned;
    });
  }

  void add_call(const Node& node, IndexedNode& indexed) const {
    const auto num_written = static_cast<size_t>(
        std::ranges::count(indexed.reads, true, &IndexedNode::Read::is_written));
    indexed.num_results = node.outputs().size() - num_written - (node.is_random() ? 1 : 0);
    const bool is_scatter = in_place_.scatters.contains(&node);
    indexed.is_view = is_scatter || (info_of(node).makes_view() && !indexed.reads.empty());
    indexed.leaves_state = is_batch_norm_in_training(node);
    const bool is_gather = options_.gathers_again && node.target() == "levin::all_gather_";
    const bool gives_the_same =
        is_deterministic(info_of(node)) || is_gather || is_overwritten_first(node);
    indexed.is_recomputable = gives_the_same && has_known_results(info_of(node)) &&
                              (indexed.leaves_state || !writes_state(indexed)) &&
                              !is_written_in_place(node, indexed);
  }

  /// Nodes that write in place run once, and so do those in whose memory they write.
  bool is_written_in_place(const Node& node, const IndexedNode& indexed) const {
    return std::ranges::any_of(indexed.reads, &IndexedNode::Read::is_in_place) ||
           std::ranges::any_of(node.outputs(), [&](const Value* value) {
             return in_place_.wholes.contains(value);
           });
  }

  IndexOptions options_;
  std::vector<IndexedNode> nodes_;
  std::unordered_map<const Node*, size_t> numbers_;
  InPlaceWrites in_place_;
};

class Scheduler {
 public:
  Scheduler(const std::vector<IndexedNode>& nodes, const Cuts& cuts)
      : nodes_(nodes), cuts_(cuts), first_(nodes.size()), newest_(nodes.size()) {}

  Schedule run() {
    for (size_t time = 0; time < nodes_.size(); ++time) add(time, time);
    for (size_t step = schedule_.steps.size(); step-- > 0;) drop_if_unread(step);
    return std::move(schedule_);
  }

 private:
  size_t generation(size_t node, size_t time) const {
    const auto& cuts = cuts_[nodes_[node].root];
    return static_cast<size_t>(std::ranges::lower_bound(cuts, time) - cuts.begin());
  }

  /// Its operands, if they are gone, come first.
  void add(size_t number, size_t time) {
    const IndexedNode& node = nodes_[number];
    const bool is_again = number != time;
    const size_t first = operands_.size();
    for (const IndexedNode::Read& read : node.reads) {
      if (!is_again || node.reads_again(read)) operands_.push_back(value_of(read, time));
    }
    const size_t num_outputs = is_again && node.leaves_state ? node.num_results : node.bytes.size();
    const size_t step = schedule_.steps.size();
    const size_t root =
        node.is_view ? schedule_.steps[schedule_.makers[operands_[first]]].root : step;
    schedule_.steps.push_back({.node = number,
                               .time = time,
                               .generation = generation(number, time),
                               .root = root,
                               .first_value = schedule_.makers.size(),
                               .first_read = schedule_.reads.size(),
                               .is_again = is_again});
    schedule_.makers.resize(schedule_.makers.size() + num_outputs, step);
    schedule_.num_uses.resize(schedule_.makers.size(), 0);
    for (size_t i = first; i < operands_.size(); ++i) {
      schedule_.reads.push_back(operands_[i]);
      ++schedule_.num_uses[operands_[i]];
    }
    operands_.resize(first);
    newest_[number] = step;
    if (!is_again) first_[number] = step;
  }

  size_t value_of(const IndexedNode::Read& read, size_t time) {
    if (!nodes_[read.node].gives_again(read.output)) {
      return schedule_.steps[first_[read.node]].first_value + read.output;
    }
    if (schedule_.steps[newest_[read.node]].generation != generation(read.node, time)) {
      add(read.node, time);
    }
    return schedule_.steps[newest_[read.node]].first_value + read.output;
  }

  void drop_if_unread(size_t number) {
    Step& step = schedule_.steps[number];
    const IndexedNode& node = nodes_[step.node];
    if (!node.is_recomputable || !node.is_read) return;
    const auto begin = schedule_.num_uses.begin() + static_cast<std::ptrdiff_t>(step.first_value);
    const auto end = begin + static_cast<std::ptrdiff_t>(node.bytes.size());
    if (step.is_again || std::find_if(begin, end, std::identity()) != end) return;
    step.is_dropped = true;
    for (size_t i = step.first_read; i < schedule_.end_of_reads(number); ++i) {
      --schedule_.num_uses[schedule_.reads[i]];
    }
  }

  const std::vector<IndexedNode>& nodes_;
  const Cuts& cuts_;
  std::vector<size_t> first_;   ///< by node, its first step
  std::vector<size_t> newest_;  ///< and its last so far
  std::vector<size_t> operands_;
  Schedule schedule_;
};

class Profiler {
 public:
  Profiler(const std::vector<IndexedNode>& nodes, const Schedule& schedule)
      : nodes_(nodes), schedule_(schedule) {
    profile_.values.resize(schedule.makers.size(), {.memory = kNone});
    profile_.bytes.reserve(schedule.steps.size());
  }

  Profile run(int64_t limit_bytes) {
    add_owned();
    for (size_t step = 0; step < schedule_.steps.size(); ++step) {
      if (!schedule_.steps[step].is_dropped) add(step);
      profile_.bytes.push_back(now_);
      if (now_ > profile_.peak_bytes) {
        profile_.peak_bytes = now_;
        profile_.peak_step = step;
      }
      if (now_ > limit_bytes) break;
      for (const size_t block : touched_) release(block, step);
      touched_.clear();
    }
    return std::move(profile_);
  }

 private:
  /// State and inputs, wherever their nodes stand. An input that nobody reads is not held.
  void add_owned() {
    for (size_t number = 0; number < schedule_.steps.size(); ++number) {
      const Step& step = schedule_.steps[number];
      const IndexedNode& node = nodes_[step.node];
      const bool is_held = node.is_read || node.node->opcode() == Opcode::kGetAttr;
      for (size_t i = 0; node.is_owned && is_held && i < node.num_results; ++i) {
        if (node.bytes[i] >= 0) make(0, step.first_value + i, node.bytes[i], /*is_owned=*/true);
      }
    }
    touched_.clear();
  }

  void add(size_t number) {
    const Step& step = schedule_.steps[number];
    const IndexedNode& node = nodes_[step.node];
    if (node.is_owned) return;
    const size_t first = step.first_read;
    const size_t num_reads = schedule_.end_of_reads(number) - first;
    liveness_.begin_operator();
    for (size_t i = 0; i < num_reads; ++i) {
      Live& value = profile_.values[schedule_.reads[first + i]];
      if (value.memory == kNone) continue;
      liveness_.use(value);
      touched_.push_back(value.memory);
    }
    for (size_t i = 0; i < node.num_results; ++i) {
      if (node.bytes[i] < 0) continue;
      const size_t value = step.first_value + i;
      if (node.is_view) {
        share(value, profile_.values[schedule_.reads[first]].memory);
      } else {
        make(number, value, node.bytes[i]);
      }
    }
    if (!step.is_again || !node.leaves_state) write(number, node);
  }

  /// An operator writes in place if nobody else reads that memory.
  void write(size_t number, const IndexedNode& node) {
    const Step& step = schedule_.steps[number];
    size_t output = node.num_results;
    for (size_t i = 0; i < node.reads.size(); ++i) {
      if (!node.reads[i].is_written) continue;
      const size_t value = step.first_value + output;
      const Live& old = profile_.values[schedule_.reads[step.first_read + i]];
      if (node.reads[i].is_in_place || liveness_.may_write(old)) {
        share(value, old.memory);
      } else {
        make(number, value, node.bytes[output]);
      }
      ++output;
    }
  }

  void make(size_t step, size_t value, int64_t bytes, bool is_owned = false) {
    profile_.blocks.push_back({.step = step, .value = value, .bytes = bytes, .is_owned = is_owned});
    now_ += bytes;
    share(value, liveness_.add_memory());
    if (schedule_.num_uses[value] == 0) touched_.push_back(profile_.blocks.size() - 1);
  }

  void share(size_t value, size_t memory) {
    profile_.values[value] = liveness_.make(memory, schedule_.num_uses[value]);
  }

  void release(size_t number, size_t step) {
    Block& block = profile_.blocks[number];
    const bool is_gone = block.last != kNone;
    if (is_gone || block.is_owned || !liveness_.is_free(number)) return;
    block.last = step;
    now_ -= block.bytes;
  }

  const std::vector<IndexedNode>& nodes_;
  const Schedule& schedule_;
  Profile profile_;
  Liveness liveness_;
  std::vector<size_t> touched_;  ///< blocks that the present step reads, or makes for nobody
  int64_t now_ = 0;
};

}  // namespace

std::vector<IndexedNode> index_nodes(const Graph& graph, const IndexOptions& options) {
  return Indexer(options).run(graph);
}

Schedule schedule_of(const std::vector<IndexedNode>& nodes, const Cuts& cuts) {
  return Scheduler(nodes, cuts).run();
}

Profile profile_of(const std::vector<IndexedNode>& nodes, const Schedule& schedule,
                   int64_t limit_bytes) {
  return Profiler(nodes, schedule).run(limit_bytes);
}

}  // namespace levin::graph
