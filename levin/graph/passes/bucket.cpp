#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/comm/collectives/bucket_plan.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

using Counts = std::vector<int64_t>;

bool is_contiguous(const ValueType& type) {
  int64_t stride = 1;
  for (size_t dim = type.sizes.size(); dim-- > 0;) {
    if (type.sizes[dim] != 1 && type.strides[dim] != stride) return false;
    stride *= type.sizes[dim];
  }
  return true;
}

int64_t numel_of(const ValueType& type) { return c10::multiply_integers(type.sizes); }

/// Inserts operators whose results are contiguous.
class Packer {
 public:
  Packer(Graph& graph, const ValueType& like) : graph_(graph), like_(like) {}

  Value& unwritten(int64_t count) {
    return add("aten::empty_strided",
               {Counts{count}, Counts{1}, static_cast<int64_t>(like_.dtype), nullptr,
                Argument(c10::IValue(like_.device)), nullptr},
               {count});
  }
  Value& flat(Value& value) {
    const int64_t count = numel_of(value.type());
    return value.type().sizes.size() == 1 ? value
                                          : add("aten::view", {value, Counts{count}}, {count});
  }
  Value& shaped(Value& flat, at::IntArrayRef sizes) {
    return sizes.size() == 1 ? flat : add("aten::view", {flat, sizes.vec()}, sizes);
  }
  Value& slice(Value& flat, int64_t begin, int64_t count) {
    return add("aten::slice.Tensor", {flat, int64_t{0}, begin, begin + count, int64_t{1}}, {count});
  }
  Value& joined(const Values& pieces) {
    int64_t count = 0;
    for (const Value* piece : pieces) count += numel_of(piece->type());
    return add("aten::cat", {pieces, int64_t{0}}, {count});
  }

 private:
  Value& add(const char* target, std::vector<Argument> arguments, at::IntArrayRef sizes) {
    Value& value = graph_.call_function(target, std::move(arguments)).output();
    ValueType type{.dtype = like_.dtype, .device = like_.device};
    type.sizes.assign(sizes.begin(), sizes.end());
    type.strides.resize(sizes.size());
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      type.strides[dim] = stride;
      stride *= std::max<int64_t>(sizes[dim], 1);
    }
    value.set_type(std::move(type));
    return value;
  }

  Graph& graph_;
  const ValueType like_;
};

/// The layout of parts that go together: of each rank, its parts of all members.
struct JoinedParts {
  explicit JoinedParts(const std::vector<Collective>& members) {
    for (const Collective& member : members) counts.push_back(member.counts());
    sums.assign(counts.front().size(), 0);
    for (const Counts& of : counts) {
      for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += of[rank];
    }
  }
  /// The first element of a rank's part of a member among the joined ones.
  int64_t begin(size_t member, size_t rank) const {
    const auto sum =
        std::accumulate(sums.begin(), sums.begin() + static_cast<int64_t>(rank), int64_t{0});
    int64_t within = 0;
    for (size_t i = 0; i < member; ++i) within += counts[i][rank];
    return sum + within;
  }
  std::vector<Counts> counts;  ///< by member and rank
  Counts sums;                 ///< by rank
};

/// The joined gather, whose operators go where the first member is.
Values join_gathers(Graph& graph, const std::vector<Collective>& members) {
  Packer pack(graph, members.front().written().front()->type());
  const JoinedParts parts(members);
  Values sent;
  for (const Collective& member : members) sent.push_back(&pack.flat(*member.sent().front()));
  Value& whole = pack.unwritten(std::accumulate(parts.sums.begin(), parts.sums.end(), int64_t{0}));
  Value& gathered = graph
                        .call_function("levin::all_gather_", {whole, pack.joined(sent), parts.sums,
                                                              members.front().group()})
                        .output();
  gathered.set_type(whole.type());
  Values results;
  for (size_t i = 0; i < members.size(); ++i) {
    Values pieces;
    for (size_t rank = 0; rank < parts.sums.size(); ++rank) {
      const int64_t count = parts.counts[i][rank];
      if (count > 0) pieces.push_back(&pack.slice(gathered, parts.begin(i, rank), count));
    }
    Value& flat = pieces.size() == 1 ? *pieces.front() : pack.joined(pieces);
    results.push_back(&pack.shaped(flat, members[i].written().front()->type().sizes));
  }
  return results;
}

/// The joined reduce-scatter, whose operators go where the last member is.
Values join_reduce_scatters(Graph& graph, const std::vector<Collective>& members) {
  Packer pack(graph, members.front().written().front()->type());
  const JoinedParts parts(members);
  Values wholes, pieces;
  for (const Collective& member : members) wholes.push_back(&pack.flat(*member.sent().front()));
  Counts begins(members.size(), 0);
  for (size_t rank = 0; rank < parts.sums.size(); ++rank) {
    for (size_t i = 0; i < members.size(); ++i) {
      const int64_t count = parts.counts[i][rank];
      if (count > 0) pieces.push_back(&pack.slice(*wholes[i], begins[i], count));
      begins[i] += count;
    }
  }
  int64_t count = 0;
  for (const Collective& member : members) {
    count += numel_of(member.written().front()->type());
  }
  Value& part = pack.unwritten(count);
  const Argument op(members.front().reduction().c_str());
  Value& reduced =
      graph
          .call_function("levin::reduce_scatter_",
                         {part, pack.joined(pieces), parts.sums, op, members.front().group()})
          .output();
  reduced.set_type(part.type());
  Values results;
  int64_t begin = 0;
  for (const Collective& member : members) {
    const ValueType& type = member.written().front()->type();
    Value& own = pack.slice(reduced, begin, numel_of(type));
    results.push_back(&pack.shaped(own, type.sizes));
    begin += numel_of(type);
  }
  return results;
}

Values join_all_reduces(Graph& graph, const std::vector<Collective>& members) {
  Values tensors;
  for (const Collective& member : members) {
    const Values written = member.written();
    tensors.insert(tensors.end(), written.begin(), written.end());
  }
  const Argument op(members.front().reduction().c_str());
  const Node& joined =
      graph.call_function("levin::all_reduce_", {tensors, members.front().group(), op});
  for (size_t i = 0; i < tensors.size(); ++i) joined.output(i).set_type(tensors[i]->type());
  return {joined.outputs().begin(), joined.outputs().end()};
}

/// Returns whether it may go with others: what it writes is all of a tensor, and nobody needs the old
/// contents of that.
bool can_be_joined(const Collective& collective) {
  if (collective.is_start) return false;
  if (collective.kind == CollectiveKind::kAllReduce) return !collective.written().empty();
  const bool has_parts = collective.kind == CollectiveKind::kAllGather ||
                         collective.kind == CollectiveKind::kReduceScatter;
  if (!has_parts) return false;
  Value& written = *collective.written().front();
  const Node& maker = written.node();
  const bool is_view = maker.opcode() == Opcode::kCallFunction && info_of(maker).makes_view();
  return !is_view && is_contiguous(written.type()) && !written.type().sizes.empty() &&
         is_contiguous(collective.sent().front()->type()) && collective.bytes() > 0;
}

bool go_together(const Collective& left, const Collective& right) {
  const ValueType& mine = left.written().front()->type();
  const ValueType& others = right.written().front()->type();
  return left.kind == right.kind && left.group_name() == right.group_name() &&
         left.reduction() == right.reduction() && mine.dtype == others.dtype &&
         mine.device == others.device && left.counts().size() == right.counts().size();
}

/// Joins collectives of one kind in the order of the graph: gathers where the first of them is,
/// reductions where the last is.
class BucketBuilder {
 public:
  BucketBuilder(Graph& graph, CollectiveKind kind, int64_t limit_bytes)
      : graph_(graph), kind_(kind), limit_bytes_(limit_bytes) {}

  size_t run() {
    for (auto place = graph_.nodes().begin(); place != graph_.nodes().end();) {
      Node& node = *place++;
      const auto collective = Collective::of(node);
      if (collective && collective->kind == kind_ && can_be_joined(*collective)) {
        add(*collective);
      } else {
        pass(node, collective.has_value());
      }
      made_.insert(node.outputs().begin(), node.outputs().end());
    }
    close();
    return num_buckets_;
  }

 private:
  bool is_gather() const { return kind_ == CollectiveKind::kAllGather; }

  bool reads_run(const Node& node) const {
    const Values inputs = node.inputs();
    return std::ranges::any_of(inputs, [&](const Value* input) { return given_.contains(input); });
  }

  /// A gather may go to an earlier place if what it sends is there: others need not wait for it. A
  /// reduction that goes to a later place must not be read before that.
  void pass(const Node& node, bool is_known_collective) {
    if (is_gather()) return;
    const bool is_other = node.opcode() == Opcode::kCallFunction && info_of(node).is_collective;
    const auto collective = Collective::of(node);
    const bool may_be_passed = kind_ == CollectiveKind::kReduceScatter && is_known_collective &&
                               collective->kind == CollectiveKind::kAllGather;
    if (reads_run(node) || (is_other && !may_be_passed)) close();
  }

  void add(const Collective& collective) {
    const bool follows =
        !run_.empty() && go_together(run_.front(), collective) &&
        (is_gather() ? sends_what_is_there(collective) : !reads_run(*collective.node));
    if (!follows) close();
    if (run_.empty()) made_at_first_ = made_;
    run_.push_back(collective);
    given_.insert(collective.node->outputs().begin(), collective.node->outputs().end());
  }

  bool sends_what_is_there(const Collective& collective) const {
    const Values sent = collective.sent();
    return std::ranges::all_of(sent,
                               [&](const Value* value) { return made_at_first_.contains(value); });
  }

  void close() {
    std::vector<comm::PlannedGradient> sizes;
    for (const Collective& one : run_) {
      const ValueType& type = one.written().front()->type();
      sizes.push_back({.numel = one.bytes() / static_cast<int64_t>(c10::elementSize(type.dtype)),
                       .type = type.dtype});
    }
    std::vector<size_t> order(run_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const comm::BucketSizes limits = {
        .first_bytes = limit_bytes_, .bytes = limit_bytes_, .is_limit = true};
    for (const comm::BucketPlan& bucket : comm::plan_buckets(sizes, order, limits)) {
      ++num_buckets_;
      if (bucket.members.size() > 1) join(bucket.members);
    }
    run_.clear();
    given_.clear();
  }

  void join(const std::vector<size_t>& indices) {
    std::vector<Collective> members;
    for (const size_t index : indices) members.push_back(run_[index]);
    const size_t place = is_gather() ? std::ranges::min(indices) : std::ranges::max(indices);
    Values results;
    {
      const InsertionPoint before = graph_.inserting_before(*run_[place].node);
      if (kind_ == CollectiveKind::kAllReduce) results = join_all_reduces(graph_, members);
      if (is_gather()) results = join_gathers(graph_, members);
      if (kind_ == CollectiveKind::kReduceScatter) {
        results = join_reduce_scatters(graph_, members);
      }
    }
    size_t next = 0;
    for (const Collective& member : members) {
      const Values targets = member.written();
      for (Value* output : member.node->outputs()) {
        output->replace_all_uses_with(*results[next++]);
      }
      graph_.erase_node(*member.node);
      for (const Value* target : targets) erase_unread(target->node());
    }
  }

  /// Memory without contents, which nobody writes any more.
  void erase_unread(Node& node) {
    const bool is_unread = node.opcode() == Opcode::kCallFunction &&
                           info_of(node).makes_unwritten && node.output().users().empty();
    if (is_unread) graph_.erase_node(node);
  }

  using ValueSet = std::unordered_set<const Value*>;
  Graph& graph_;
  CollectiveKind kind_;
  int64_t limit_bytes_;
  std::vector<Collective> run_;  ///< collectives that may be joined
  ValueSet given_;               ///< by them
  ValueSet made_;                ///< by the nodes so far
  ValueSet made_at_first_;       ///< by the nodes before the first of the run
  size_t num_buckets_ = 0;
};

}  // namespace

size_t bucket_collectives(Graph& graph, int64_t bytes) {
  join_starts(graph);
  move_state_to_front(graph);
  size_t count = 0;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
    count += BucketBuilder(graph, kind, bytes).run();
  }
  return count;
}

}  // namespace levin::graph
