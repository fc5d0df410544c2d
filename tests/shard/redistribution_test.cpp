// Every pair of layouts on meshes of up to 8 ranks, without processes: plans are carried out on parts
// of a whole and compared with what slicing the whole gives, and with the least that must be sent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "levin/shard/exchange.h"
#include "levin/shard/plan.h"
#include "tests/shard/layouts.h"

namespace {

using levin::ReduceOp;
using levin::comm::MeshShape;
using levin::shard::Box;
using levin::shard::Layout;
using levin::shard::Move;
using levin::shard::Partial;
using levin::shard::Plan;
using levin::shard::plan_redistribute;
using levin::test::layouts_of;
using levin::test::local_of;
using levin::test::Numbers;
using levin::test::summand;
using levin::test::Way;
using levin::test::whole_of;

constexpr int64_t kNothing = -1000000;  // no value of a test comes near it

/// Elements of a box by their numbers in the whole.
Numbers elements_of(const Box& box, const Numbers& sizes) {
  Numbers elements = {0};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    Numbers next;
    for (const int64_t element : elements) {
      for (int64_t i = 0; i < box.sizes[dim]; ++i) {
        next.push_back(element * sizes[dim] + box.offsets[dim] + i);
      }
    }
    elements = std::move(next);
  }
  return elements;
}

/// What every rank holds under a layout, each in a copy of the whole that is kNothing elsewhere.
struct Ranks {
  Layout layout;
  std::vector<Numbers> coordinates, elements, values;

  explicit Ranks(Layout of) : layout(std::move(of)) {
    for (int64_t rank = 0; rank < layout.mesh().size(); ++rank) {
      coordinates.push_back(layout.mesh().coordinates(rank));
      elements.push_back(elements_of(layout.box(rank), layout.sizes()));
      values.emplace_back(static_cast<size_t>(layout.numel()), kNothing);
      for (const int64_t element : elements.back()) {
        values.back()[static_cast<size_t>(element)] =
            summand(layout, coordinates.back(), element, 100 + element);
      }
    }
  }
};

int64_t put_together(ReduceOp op, const int64_t* values, int64_t count) {
  int64_t result = values[0];
  for (int64_t i = 1; i < count; ++i) {
    const int64_t next = values[i];
    if (op == ReduceOp::kSum || op == ReduceOp::kMean) result += next;
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kProduct) result *= next;
  }
  return op == ReduceOp::kMean ? result / count : result;
}

/// The element as the layout means it: over the partial axes from this one on, the right ones first.
int64_t meant(const Layout& layout, const std::vector<Numbers>& values, Numbers coordinates,
              size_t element, size_t axis = 0) {
  if (axis == coordinates.size()) {
    return values[static_cast<size_t>(layout.mesh().rank(coordinates))][element];
  }
  const auto* partial = std::get_if<Partial>(&layout.placements()[axis]);
  if (partial == nullptr) return meant(layout, values, coordinates, element, axis + 1);
  Numbers inner;
  for (int64_t c = 0; c < layout.mesh().axes()[axis].size; ++c) {
    coordinates[axis] = c;
    inner.push_back(meant(layout, values, coordinates, element, axis + 1));
  }
  return put_together(partial->op, inner.data(), std::ssize(inner));
}

/// One plan carried out.
class Simulation {
 public:
  Simulation(const Ranks& from, const Ranks& to)
      : from_(from), to_(to), plan_(plan_redistribute(from.layout, to.layout)) {
    const auto num_ranks = static_cast<size_t>(plan_.num_ranks());
    values_.assign(num_ranks, Numbers(from.values[0].size(), kNothing));
    for (size_t rank = 0; rank < num_ranks; ++rank) receive(rank);
  }

  /// "" or the first thing that is wrong.
  std::string fault() {
    if (!fault_.empty()) return fault_;
    for (size_t rank = 0; rank < values_.size(); ++rank) {
      check_sender(rank);
      for (const int64_t element : to_.elements[rank]) {
        const int64_t got =
            meant(to_.layout, values_, to_.coordinates[rank], static_cast<size_t>(element));
        if (got != 100 + element) note("rank {} got {} for element {}", rank, got, element);
      }
    }
    if (plan_.is_local() != (sent_ == 0)) note("is_local, but {} elements are sent", sent_);
    return fault_;
  }

  int64_t sent() const { return sent_; }
  const Plan& plan() const { return plan_; }

 private:
  void receive(size_t rank) {
    const auto fill = plan_.fill(static_cast<int64_t>(rank));
    if (fill) {
      for (const int64_t element : to_.elements[rank]) {
        values_[rank][static_cast<size_t>(element)] = *fill;
      }
    }
    moves_.push_back(plan_.moves_to(static_cast<int64_t>(rank)));
    const std::vector<Move>& moves = moves_.back();
    const auto num_parts = static_cast<size_t>(plan_.num_parts());
    for (size_t first = 0; first < moves.size(); first += num_parts) {
      for (size_t part = 0; part < num_parts; ++part) {
        const Move& move = moves[first + part];
        if (move.box != moves[first].box || move.part != static_cast<int64_t>(part)) {
          note("rank {}: part {} of a box is missing", rank, part);
        }
        if (move.from != static_cast<int64_t>(rank)) sent_ += move.box.numel();
      }
      for (const int64_t element : elements_of(moves[first].box, to_.layout.sizes())) {
        set(rank, static_cast<size_t>(element), &moves[first], num_parts);
      }
    }
  }

  void set(size_t rank, size_t element, const Move* moves, size_t num_parts) {
    Numbers parts;
    for (size_t part = 0; part < num_parts; ++part) {
      parts.push_back(from_.values[static_cast<size_t>(moves[part].from)][element]);
      if (parts.back() == kNothing) note("rank {} does not have what it sends", moves[part].from);
    }
    for (const auto& [op, count] : plan_.reductions()) {
      Numbers fewer;
      for (size_t i = 0; i < parts.size(); i += static_cast<size_t>(count)) {
        fewer.push_back(put_together(op, &parts[i], count));
      }
      parts = fewer;
    }
    if (values_[rank][element] != kNothing)
      note("element {} comes to rank {} twice", element, rank);
    values_[rank][element] = parts.at(0);
  }

  /// Senders and receivers must see the same moves.
  void check_sender(size_t rank) {
    size_t number = 0;
    for (const auto& received : moves_) {
      for (const Move& move : received) number += move.from == static_cast<int64_t>(rank) ? 1 : 0;
    }
    const std::vector<Move> sent = plan_.moves_from(static_cast<int64_t>(rank));
    if (sent.size() != number) note("rank {} sends {} boxes", rank, sent.size());
    for (const Move& move : sent) {
      const auto& received = moves_[static_cast<size_t>(move.to)];
      if (std::ranges::find(received, move) == received.end()) {
        note("rank {} sends what rank {} does not expect", rank, move.to);
      }
    }
  }

  template <class... Values>
  void note(const char* text, Values... values) {
    if (fault_.empty()) fault_ = fmt::format(fmt::runtime(text), values...);
  }

  const Ranks& from_;
  const Ranks& to_;
  Plan plan_;
  std::vector<std::vector<Move>> moves_;  // by receiver
  std::vector<Numbers> values_;
  int64_t sent_ = 0;
  std::string fault_;
};

/// Elements that must come from elsewhere, where all partial axes have one operation: each that a rank
/// wants and does not have, and of what is reduced a summand from each other rank that has one.
int64_t must_be_sent(const Ranks& from, const Ranks& to, const Plan& plan) {
  const bool same_mesh = from.layout.mesh() == to.layout.mesh();
  int64_t num_parts = 1;
  for (size_t axis = 0; axis < from.layout.placements().size(); ++axis) {
    const auto& placement = from.layout.placements()[axis];
    if (!std::holds_alternative<Partial>(placement)) continue;
    if (same_mesh && placement == to.layout.placements()[axis]) continue;
    num_parts *= from.layout.mesh().axes()[axis].size;
  }
  int64_t elements = 0;
  for (size_t rank = 0; rank < to.values.size(); ++rank) {
    if (plan.fill(static_cast<int64_t>(rank))) continue;
    for (const int64_t element : to.elements[rank]) {
      const bool has_one = from.values[rank][static_cast<size_t>(element)] != kNothing;
      elements += num_parts - (has_one ? 1 : 0);
    }
  }
  return elements;
}

/// All pairs of the layouts; how many.
int64_t check_pairs(const std::vector<Layout>& layouts, bool one_operation = true) {
  std::vector<Ranks> all;
  for (const Layout& layout : layouts) all.emplace_back(layout);
  int64_t pairs = 0;
  for (const Ranks& from : all) {
    for (const Ranks& to : all) {
      Simulation simulation(from, to);
      const std::string fault = simulation.fault();
      EXPECT_EQ(fault, "") << from.layout << " to " << to.layout;
      if (one_operation) {
        EXPECT_EQ(simulation.sent(), must_be_sent(from, to, simulation.plan()))
            << from.layout << " to " << to.layout;
      }
      if (::testing::Test::HasFailure()) return pairs;  // the first is enough
      ++pairs;
    }
  }
  return pairs;
}

std::vector<Way> ways_of(int64_t num_dims) {
  std::vector<Way> ways = {{Way::kReplicate}, {Way::kPartial}};
  for (int64_t dim = 0; dim < num_dims; ++dim) ways.push_back({Way::kShard, dim});
  return ways;
}

std::vector<Way> all_ways_of(int64_t num_dims) {
  std::vector<Way> ways = ways_of(num_dims);
  for (int64_t dim = 0; dim < num_dims; ++dim) {
    ways.push_back({Way::kRagged, dim});
    ways.push_back({Way::kOwned, dim});
  }
  return ways;
}

TEST(Redistribution, OfAllPairsOnOneAxis) {
  int64_t pairs = 0;
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (const Numbers& sizes : {Numbers{}, Numbers{0}, Numbers{1}, Numbers{11}, Numbers{5, 3},
                                 Numbers{0, 3}, Numbers{4, 1, 3}, Numbers{2, 9, 2}}) {
      pairs += check_pairs(layouts_of(sizes, {{"a", ranks}}, all_ways_of(std::ssize(sizes))));
    }
  }
  EXPECT_GT(pairs, 3000);
}

TEST(Redistribution, OfAllPairsOnTwoAxes) {
  int64_t pairs = 0;
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>{2, 2}, {2, 3}, {3, 2}, {1, 4}, {2, 4}}) {
    for (const Numbers& sizes : {Numbers{}, Numbers{7}, Numbers{5, 3}}) {
      pairs += check_pairs(layouts_of(sizes, {{"a", a}, {"b", b}}, all_ways_of(std::ssize(sizes))));
    }
  }
  pairs += check_pairs(layouts_of({3, 2, 2}, {{"a", 2}, {"b", 2}}, all_ways_of(3)));
  EXPECT_GT(pairs, 30000);
}

TEST(Redistribution, OfAllPairsOnThreeAxes) {
  const MeshShape mesh{{"a", 2}, {"b", 2}, {"c", 2}};
  std::vector<Way> ways = ways_of(1);
  ways.push_back({Way::kRagged, 0});
  ways.push_back({Way::kOwned, 0});
  int64_t pairs = check_pairs(layouts_of({13}, mesh, ways));
  pairs += check_pairs(layouts_of({3, 2}, mesh, ways_of(2)));
  pairs += check_pairs(layouts_of({3, 1, 2}, mesh, ways_of(3)));
  EXPECT_GT(pairs, 30000);
}

TEST(Redistribution, BetweenMeshesOfTheSameRanks) {
  std::vector<Layout> layouts;
  for (const MeshShape& mesh :
       {MeshShape{{"a", 8}}, MeshShape{{"a", 2}, {"b", 4}}, MeshShape{{"b", 4}, {"a", 2}},
        MeshShape{{"a", 2}, {"b", 2}, {"c", 2}}}) {
    const auto more = layouts_of({7}, mesh, ways_of(1));
    layouts.insert(layouts.end(), more.begin(), more.end());
  }
  EXPECT_GT(check_pairs(layouts), 2000);
}

// Operations that do not commute stand on neighbouring axes: what is reduced first matters.
TEST(Redistribution, OfEveryReduction) {
  std::vector<Way> ways = {{Way::kReplicate}, {Way::kShard}};
  for (const auto op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    ways.push_back({.kind = Way::kPartial, .op = op});
  }
  int64_t pairs = check_pairs(layouts_of({5}, {{"a", 3}}, ways), false);
  pairs += check_pairs(layouts_of({5}, {{"a", 2}, {"b", 3}}, ways), false);
  ways = {{Way::kReplicate}};
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}) {
    ways.push_back({.kind = Way::kPartial, .op = op});
  }
  pairs += check_pairs(layouts_of({1}, {{"a", 2}, {"b", 2}, {"c", 2}}, ways), false);
  EXPECT_GT(pairs, 6000);
}

/// The ranks' new parts, by the functions that exchange() is made of.
std::vector<at::Tensor> carried_out(const Plan& plan, const std::vector<at::Tensor>& locals) {
  std::vector<std::vector<at::Tensor>> sent;
  for (size_t rank = 0; rank < locals.size(); ++rank) {
    sent.push_back(pack(plan, static_cast<int64_t>(rank), locals[rank]));
  }
  std::vector<at::Tensor> results;
  for (size_t rank = 0; rank < locals.size(); ++rank) {
    std::vector<at::Tensor> received;
    for (const auto& from : sent) received.push_back(from[rank].flatten());
    results.push_back(unpack(plan, static_cast<int64_t>(rank), locals[rank], received));
  }
  return results;
}

/// The same values and sizes, one element a column in memory.
at::Tensor scattered(const at::Tensor& tensor) {
  return at::stack({tensor, tensor}, -1).select(-1, 0);
}

TEST(Redistribution, OfTensorsIsThatOfThePlan) {
  for (const MeshShape& mesh : {MeshShape{{"a", 4}}, MeshShape{{"a", 2}, {"b", 3}}}) {
    std::vector<Way> ways = all_ways_of(2);
    ways.push_back({.kind = Way::kPartial, .op = ReduceOp::kMax});
    const std::vector<Layout> layouts = layouts_of({5, 3}, mesh, ways);
    std::vector<std::vector<at::Tensor>> locals;
    for (const Layout& layout : layouts) {
      locals.emplace_back();
      for (int64_t rank = 0; rank < mesh.size(); ++rank) {
        locals.back().push_back(scattered(local_of(layout, rank)));
      }
    }
    const at::Tensor whole = whole_of({5, 3});
    for (size_t from = 0; from < layouts.size(); ++from) {
      for (size_t to = 0; to < layouts.size(); to += 3) {  // one in three: pairs stand above
        const auto got = carried_out(plan_redistribute(layouts[from], layouts[to]), locals[from]);
        const std::vector<levin::shard::Placement> all(mesh.num_axes(), levin::shard::Replicate{});
        const Layout replicated({5, 3}, mesh, all);
        const auto wholes = carried_out(plan_redistribute(layouts[to], replicated), got);
        for (size_t rank = 0; rank < got.size(); ++rank) {
          ASSERT_EQ(got[rank].sizes(), at::IntArrayRef(layouts[to].box(int64_t(rank)).sizes));
          ASSERT_TRUE(got[rank].is_contiguous());
          ASSERT_TRUE(wholes[rank].equal(whole)) << layouts[from] << " to " << layouts[to];
        }
      }
    }
  }
}

}  // namespace
