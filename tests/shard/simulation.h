#pragma once
// A plan carried out without processes and without the library's own functions for that: ranks are
// lists of numbers, each in a copy of the whole.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "levin/shard/plan.h"
#include "tests/shard/layouts.h"

namespace levin::test {

using shard::Move;
using shard::Partial;
using shard::Plan;
using shard::Slice;

constexpr int64_t kNothing = -1000000;  // no value of a test comes near it

/// Elements of a slice by their numbers in the whole.
inline Numbers elements_of(const Slice& slice, const Numbers& sizes) {
  Numbers elements = {0};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    Numbers next;
    for (const int64_t element : elements) {
      for (int64_t i = 0; i < slice.sizes[dim]; ++i) {
        next.push_back(element * sizes[dim] + slice.offsets[dim] + i);
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
      elements.push_back(elements_of(layout.slice(rank), layout.sizes()));
      values.emplace_back(static_cast<size_t>(layout.numel()), kNothing);
      for (const int64_t element : elements.back()) {
        values.back()[static_cast<size_t>(element)] =
            summand(layout, coordinates.back(), element, 100 + element);
      }
    }
  }
};

inline int64_t put_together(ReduceOp op, const int64_t* values, int64_t count) {
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
inline int64_t meant(const Layout& layout, const std::vector<Numbers>& values, Numbers coordinates,
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
      : from_(from), to_(to), plan_(shard::plan_redistribute(from.layout, to.layout)) {
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
        if (move.slice != moves[first].slice || move.part != static_cast<int64_t>(part)) {
          note("rank {}: part {} of a slice is missing", rank, part);
        }
        if (move.from != static_cast<int64_t>(rank)) sent_ += move.slice.numel();
      }
      for (const int64_t element : elements_of(moves[first].slice, to_.layout.sizes())) {
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
    if (sent.size() != number) note("rank {} sends {} slices", rank, sent.size());
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

}  // namespace levin::test
