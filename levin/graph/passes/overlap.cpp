#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

constexpr size_t kEnd = std::numeric_limits<size_t>::max();

/// A collective with its start and its wait. A place is the number of a node, before which it goes.
struct Exchange {
  Node* start = nullptr;
  Node* wait = nullptr;
  std::vector<Node*> before;  ///< go with the start: memory to write to, views of what it sends
  bool writes_new_memory = false;
  bool is_gather = false;
  int64_t bytes = 0;
  size_t was_at = 0;  ///< number of the start
  size_t wait_was_at = 0;
  size_t start_at = 0;  ///< places
  size_t wait_at = 0;
};

/// Values that lie in one memory if nothing is copied: views and tensors that operators wrote.
class Memories {
 public:
  explicit Memories(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (node.opcode() != Opcode::kCallFunction) continue;
      const OperatorInfo& info = info_of(node);
      if (info.returns_view && !node.inputs().empty()) {
        for (const Value* output : node.outputs()) wholes_[output] = of(*node.input(0));
        continue;
      }
      size_t count = 0;
      for (const size_t index : info.written) count += num_values(node.arguments()[index]);
      size_t output = node.outputs().size() - count - (node.is_random() ? 1 : 0);
      for (const size_t index : info.written) {
        for_each_value(node.arguments()[index], [&](const Value& written) {
          wholes_[&node.output(output++)] = of(written);
        });
      }
    }
  }
  const Value* of(const Value& value) const {
    const auto known = wholes_.find(&value);
    return known == wholes_.end() ? &value : known->second;
  }

 private:
  std::unordered_map<const Value*, const Value*> wholes_;
};

bool is_view_or_cat(const Node& node) {
  return info_of(node).makes_view() || node.target() == "aten::cat";
}

/// Moves views of gathered tensors to their first readers, so that the wait can go there.
void sink_views_of_gathers(Graph& graph) {
  std::unordered_set<const Node*> from_gathers;
  for (const StartAndWait& pair : started_in(graph)) {
    const bool is_gather = Collective::of(*pair.start)->kind == CollectiveKind::kAllGather;
    if (is_gather && pair.wait != nullptr) from_gathers.insert(pair.wait);
  }
  if (from_gathers.empty()) return;
  struct Place {
    size_t number = kEnd;
    size_t moved = kEnd;  ///< nodes that were moved before one of that number, in their order
    Graph::Nodes::iterator node = {};
    bool comes_before(const Place& other) const {
      return std::pair(number, moved) < std::pair(other.number, other.moved);
    }
  };
  std::unordered_map<const Node*, Place> places;
  std::vector<Graph::Nodes::iterator> sinking;
  size_t number = 0;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end(); ++place) {
    places[&*place] = {.number = number++, .node = place};
    if (place->opcode() != Opcode::kCallFunction || !is_view_or_cat(*place)) continue;
    const Values inputs = place->inputs();
    const bool is_from_gather = std::ranges::any_of(inputs, [&](const Value* input) {
      return input != nullptr && from_gathers.contains(&input->node());
    });
    if (!is_from_gather) continue;
    from_gathers.insert(&*place);
    sinking.push_back(place);
  }
  size_t num_moved = 0;
  for (auto node = sinking.rbegin(); node != sinking.rend(); ++node) {
    Place first;
    for (const Value* output : (*node)->outputs()) {
      for (const Node* user : output->users()) {
        if (places.at(user).comes_before(first)) first = places.at(user);
      }
    }
    if (first.number == kEnd) continue;
    graph.nodes().splice(first.node, graph.nodes(), *node);
    // Moved to before another one that was moved, it comes before all that follow that one.
    Place& here = places[&**node];
    here.number = first.number;
    here.moved = first.moved == kEnd ? num_moved : first.moved;
    num_moved += first.moved == kEnd ? 1 : 0;
  }
}

class Overlapper {
 public:
  Overlapper(Graph& graph, const OverlapOptions& options)
      : graph_(graph), limit_bytes_(options.bytes_under_way), keeps_order_(options.keeps_order) {}

  size_t run() {
    move_state_to_front(graph_);
    split_all();
    sink_views_of_gathers(graph_);
    number_nodes();
    find_exchanges();
    for (Exchange& one : exchanges_) {
      find_wait(one);
    }
    keeps_order_ ? place_in_order() : place_gathers_last();
    rebuild();
    number_starts(graph_);
    return exchanges_.size();
  }

 private:
  void split_all() {
    for (auto place = graph_.nodes().begin(); place != graph_.nodes().end();) {
      Node& node = *place++;
      const auto collective = Collective::of(node);
      const bool has_start = collective && !collective->is_start &&
                             collective->kind != CollectiveKind::kBroadcast &&
                             collective->kind != CollectiveKind::kBarrier && !node.inputs().empty();
      if (!has_start) continue;
      const InsertionPoint before = graph_.inserting_before(node);
      split(graph_, *collective);
    }
  }

  void number_nodes() {
    for (auto place = graph_.nodes().begin(); place != graph_.nodes().end(); ++place) {
      numbers_[&*place] = places_.size();
      places_.push_back(place);
    }
  }

  void find_exchanges() {
    for (const StartAndWait& pair : started_in(graph_)) {
      if (pair.wait == nullptr) continue;
      const auto collective = Collective::of(*pair.start);
      Exchange one{.start = pair.start,
                   .wait = pair.wait,
                   .is_gather = collective->kind == CollectiveKind::kAllGather,
                   .bytes = collective->bytes(),
                   .was_at = numbers_.at(pair.start),
                   .wait_was_at = numbers_.at(pair.wait)};
      moved_[one.start] = moved_[one.wait] = exchanges_.size();
      const Values written = collective->written();
      if (written.size() == 1 && info_of(*pair.start).overwrites) {
        Node& maker = written.front()->node();
        one.writes_new_memory = maker.opcode() == Opcode::kCallFunction &&
                                info_of(maker).makes_unwritten && maker.inputs().empty() &&
                                maker.output().users().size() == 1;
        if (one.writes_new_memory) take_along(one, maker);
      }
      for (const Value* sent : collective->sent()) take_views_along(one, sent->node());
      std::ranges::sort(one.before, {}, [&](const Node* node) { return numbers_.at(node); });
      exchanges_.push_back(std::move(one));
    }
  }

  void take_along(Exchange& one, Node& node) {
    moved_[&node] = exchanges_.size();
    one.before.push_back(&node);
  }

  /// Views of what it sends, and tensors put together of them, that nobody else reads.
  void take_views_along(Exchange& one, Node& node) {
    const bool is_light = node.opcode() == Opcode::kCallFunction && is_view_or_cat(node);
    if (!is_light || moved_.contains(&node)) return;
    for (const Value* output : node.outputs()) {
      for (const Node* user : output->users()) {
        const auto with = moved_.find(user);
        if (with == moved_.end() || with->second != exchanges_.size()) return;
      }
    }
    take_along(one, node);
    for (const Value* input : node.inputs()) take_views_along(one, input->node());
  }

  /// Where a node stands: a wait that was placed, at its new place.
  size_t place_of(const Node& node) const {
    const auto known = moved_.find(&node);
    if (known == moved_.end()) return numbers_.at(&node);
    const Exchange& one = exchanges_[known->second];
    return &node == one.wait ? one.wait_at : one.start_at;
  }

  /// As late as those allow who read what came, or write to what is sent.
  void find_wait(Exchange& one) {
    size_t latest = kEnd;
    const auto before = [&](const Node& node) {
      const size_t number = numbers_.at(&node);
      if (number > one.wait_was_at) latest = std::min(latest, number);
    };
    for (const Value* output : one.wait->outputs()) {
      for (const Node* user : output->users()) before(*user);
    }
    for (const Value* sent : Collective::of(*one.start)->sent()) {
      for_each_writer(*memories().of(*sent), before);
    }
    one.wait_at = latest == kEnd ? one.wait_was_at : latest;
    one.start_at = one.was_at;
  }

  const Memories& memories() {
    if (!memories_) memories_ = std::make_unique<Memories>(graph_);
    return *memories_;
  }

  template <class Visit>
  void for_each_writer(const Value& memory, const Visit& visit) {
    if (writers_.empty()) {
      for (const Node& node : graph_.nodes()) {
        if (node.opcode() != Opcode::kCallFunction) continue;
        for (const size_t index : info_of(node).written) {
          for_each_value(node.arguments()[index], [&](const Value& value) {
            writers_[memories().of(value)].push_back(&node);
          });
        }
      }
    }
    const auto found = writers_.find(&memory);
    if (found == writers_.end()) return;
    for (const Node* node : found->second) visit(*node);
  }

  /// As early as what it sends and writes allows: the place behind all that must come before.
  size_t earliest(const Exchange& one) {
    size_t place = 0;
    const auto after = [&](const Node& node) {
      if (std::ranges::count(one.before, &node) > 0) return;
      const bool moves = moved_.contains(&node);
      place = std::max(place, place_of(node) + (moves ? 0 : 1));
    };
    for (const Value* input : one.start->inputs()) after(input->node());
    for (const Node* node : one.before) {
      for (const Value* input : node->inputs()) after(input->node());
    }
    if (one.writes_new_memory) return place;
    // Readers of the old contents come first; else a replay would copy them.
    for (const Value* written : Collective::of(*one.start)->written()) {
      const Value* memory = memories().of(*written);
      for (const auto& node : graph_.nodes()) {
        if (numbers_.at(&node) >= one.was_at) break;
        for (const Value* input : node.inputs()) {
          if (input != nullptr && memories().of(*input) == memory) after(node);
        }
      }
    }
    return place;
  }

  /// A reduction: in the order of the graph, with waits of others before it where the limit is met.
  void place(Exchange& one) {
    one.start_at = std::min(std::max(earliest(one), last_start_), one.was_at);
    last_start_ = one.start_at;
    one.wait_at = std::max(one.wait_at, one.start_at);
    if (one.bytes == 0) return;
    for (Exchange& other : exchanges_) {
      const bool is_before = !other.is_gather && other.was_at < one.was_at;
      if (!is_before || !is_under_way(other, one.start_at)) continue;
      if (bytes_under_way(one.start_at, one.was_at) + one.bytes <= limit_bytes_) break;
      other.wait_at = one.start_at;
    }
  }

  void place_gathers_last() {
    for (Exchange& one : exchanges_) {
      if (!one.is_gather) place(one);
    }
    size_t last_gather = 0;
    for (Exchange& one : exchanges_) {
      if (one.is_gather) last_gather = place_gather(one, last_gather);
    }
  }

  void place_in_order() {
    used_.assign(places_.size() + 1, 0);
    for (Exchange& one : exchanges_) {
      if (one.is_gather) {
        last_start_ = place_gather(one, last_start_);
      } else {
        place(one);
        use(one);
      }
    }
  }

  static bool is_under_way(const Exchange& one, size_t place) {
    return one.start_at <= place && place < one.wait_at;
  }

  /// Returns the bytes of reductions that are under way at a place and stood before that number.
  int64_t bytes_under_way(size_t place, size_t before) const {
    int64_t bytes = 0;
    for (const Exchange& one : exchanges_) {
      if (!one.is_gather && one.was_at < before && is_under_way(one, place)) bytes += one.bytes;
    }
    return bytes;
  }

  /// A gather: as early as the limit allows, after the gather before it. It may pass reductions.
  size_t place_gather(Exchange& one, size_t last_gather) {
    if (used_.empty()) {
      used_.assign(places_.size() + 1, 0);
      for (const Exchange& other : exchanges_) {
        if (!other.is_gather) use(other);
      }
    }
    const size_t first = std::min(std::max(earliest(one), last_gather), one.wait_at);
    size_t place = one.wait_at;
    while (place > first && used_[place - 1] + one.bytes <= limit_bytes_) --place;
    one.start_at = place;
    use(one);
    return place;
  }

  void use(const Exchange& one) {
    for (size_t place = one.start_at; place < one.wait_at; ++place) used_[place] += one.bytes;
  }

  /// Puts each start, with its memory, and each wait before the node at its place.
  void rebuild() {
    std::map<std::pair<size_t, size_t>, std::vector<Node*>> by_place;  // place, number before
    for (const Exchange& one : exchanges_) {
      std::vector<Node*>& start = by_place[{one.start_at, one.was_at}];
      start = one.before;
      start.push_back(one.start);
      by_place[{one.wait_at, one.wait_was_at}].push_back(one.wait);
    }
    Graph::Nodes& nodes = graph_.nodes();
    for (const auto& [place, moved] : by_place) {
      // The next node that stays.
      size_t next = place.first;
      while (moved_.contains(&*places_[next])) ++next;
      for (Node* node : moved) nodes.splice(places_[next], nodes, places_[numbers_.at(node)]);
    }
  }

  Graph& graph_;
  int64_t limit_bytes_;
  bool keeps_order_;
  std::vector<Exchange> exchanges_;  ///< in the order of their starts
  std::vector<Graph::Nodes::iterator> places_;
  std::unordered_map<const Node*, size_t> numbers_;
  std::unordered_map<const Node*, size_t> moved_;  ///< numbers of exchanges
  std::unique_ptr<Memories> memories_;
  std::unordered_map<const Value*, std::vector<const Node*>> writers_;
  size_t last_start_ = 0;
  std::vector<int64_t> used_;  ///< bytes under way at each place
};

}  // namespace

size_t overlap_collectives(Graph& graph, const OverlapOptions& options) {
  return Overlapper(graph, options).run();
}

}  // namespace levin::graph
