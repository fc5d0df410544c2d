#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "levin/graph/passes/rematerialize_impl.h"

namespace levin::graph {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

struct Cut {
  size_t node = 0;
  size_t time = 0;
};

/// A value that could be dropped for a while, with the values that must be recomputed for it.
struct Move {
  std::vector<Cut> cuts;
  double cost = 0.0;
  int64_t bytes = 0;  ///< fewer at the peak

  double price() const { return cost / static_cast<double>(bytes); }
};

/// A schedule, and when each step's memory is read around the peak.
struct Plan {
  Schedule schedule;
  Profile profile;
  size_t num_peaks = 0;
  std::vector<size_t> last_reads;  ///< by root step: last read before the peak; the step itself if
                                   ///< there is none
  std::vector<size_t> next_reads;  ///< after it
  std::vector<bool> is_read_now;

  bool is_better_than(const Plan& other) const {
    return std::pair(profile.peak_bytes, num_peaks) <
           std::pair(other.profile.peak_bytes, other.num_peaks);
  }
};

class Rematerializer {
 public:
  Rematerializer(const std::vector<IndexedNode>& nodes, const std::vector<double>& prices,
                 int64_t budget_bytes)
      : nodes_(nodes), prices_(prices), budget_bytes_(budget_bytes), cuts_(nodes.size()) {
    plan_ = made();
  }

  FittedSchedule run() {
    while (plan_.profile.peak_bytes > budget_bytes_) {
      look();
      if (!advance(moves())) break;
    }
    if (plan_.profile.peak_bytes <= budget_bytes_) keep_what_fits();
    return {std::move(plan_.schedule), std::move(cuts_), plan_.profile.peak_bytes};
  }

 private:
  Plan made() const {
    Plan plan{.schedule = schedule_of(nodes_, cuts_)};
    plan.profile = profile_of(nodes_, plan.schedule);
    plan.num_peaks =
        static_cast<size_t>(std::ranges::count(plan.profile.bytes, plan.profile.peak_bytes));
    return plan;
  }

  void look();
  std::vector<Move> moves() const;
  std::optional<Move> move_of(size_t step, int64_t bytes) const;
  bool advance(std::vector<Move> moves);
  bool attempt(const Move* moves, size_t count);
  void keep_what_fits();

  const Step& step(size_t number) const { return plan_.schedule.steps[number]; }
  bool is_given_again(size_t value) const {
    const Step& maker = step(plan_.schedule.makers[value]);
    return nodes_[maker.node].gives_again(value - maker.first_value);
  }
  std::unordered_map<size_t, int64_t> bytes_at_peak() const;
  bool add_cut(Cut cut);
  void remove_cut(Cut cut);

  friend class Chain;
  const std::vector<IndexedNode>& nodes_;
  const std::vector<double>& prices_;
  int64_t budget_bytes_;
  Cuts cuts_;
  Plan plan_;
  std::vector<std::vector<size_t>> steps_of_;  ///< by node
};

void Rematerializer::look() {
  const Schedule& schedule = plan_.schedule;
  const size_t num_steps = schedule.steps.size(), peak = plan_.profile.peak_step;
  plan_.last_reads.resize(num_steps);
  plan_.next_reads.assign(num_steps, kNever);
  plan_.is_read_now.assign(num_steps, false);
  steps_of_.assign(nodes_.size(), {});
  for (size_t i = 0; i < num_steps; ++i) {
    plan_.last_reads[i] = i;
    if (step(i).is_dropped) continue;
    steps_of_[step(i).node].push_back(i);
    for (size_t read = step(i).first_read; read < schedule.end_of_reads(i); ++read) {
      if (!is_given_again(schedule.reads[read])) continue;
      const size_t root = step(schedule.makers[schedule.reads[read]]).root;
      if (i < peak) plan_.last_reads[root] = i;
      if (i == peak) plan_.is_read_now[root] = true;
      if (i > peak) plan_.next_reads[root] = std::min(plan_.next_reads[root], i);
    }
  }
}

/// The values that must exist to recompute a value at a time after the peak.
class Chain {
 public:
  Chain(const Rematerializer& all, size_t time) : all_(all), time_(time) {}

  void compute(size_t node) {
    move_.cost += all_.prices_[node];
    for (const IndexedNode::Read& read : all_.nodes_[node].reads) {
      if (all_.nodes_[node].reads_again(read)) need(read);
    }
  }

  /// A value that is dead at the peak is recomputed too; other values are kept.
  void need(const IndexedNode::Read& read) {
    const IndexedNode& node = all_.nodes_[read.node];
    const size_t root = node.root;
    if (all_.nodes_[root].is_owned || !node.gives_again(read.output)) return;
    if (node.is_view) {
      for (const IndexedNode::Read& operand : node.reads) need(operand);
      return;
    }
    if (std::ranges::find(seen_, root) != seen_.end()) return;
    seen_.push_back(root);
    const std::optional<size_t> there = instance(root);
    if (!there) return compute(root);
    const Plan& plan = all_.plan_;
    const size_t peak = plan.profile.peak_step;
    if (*there >= peak || plan.is_read_now[*there] || plan.next_reads[*there] != kNever) return;
    const size_t last = all_.step(plan.last_reads[*there]).time;
    if (all_.nodes_[root].is_recomputable && last < time_) {
      move_.cuts.push_back({root, last});
      compute(root);
    } else {
      move_.bytes -= std::max<int64_t>(node.bytes[read.output], 0);
    }
  }

  Move move_;

 private:
  /// The step that gives it to readers at that time, if one does.
  std::optional<size_t> instance(size_t node) const {
    const auto& cuts = all_.cuts_[node];
    const auto generation =
        static_cast<size_t>(std::ranges::lower_bound(cuts, time_) - cuts.begin());
    for (const size_t step : all_.steps_of_[node]) {
      if (all_.step(step).generation == generation) return step;
    }
    return std::nullopt;
  }

  const Rematerializer& all_;
  size_t time_;
  std::vector<size_t> seen_;
};

std::optional<Move> Rematerializer::move_of(size_t number, int64_t bytes) const {
  const size_t next = plan_.next_reads[number];
  if (next == kNever || plan_.is_read_now[number] || number == plan_.profile.peak_step) return {};
  const size_t node = step(number).node;
  const size_t begin = step(plan_.last_reads[number]).time, end = step(next).time;
  if (!nodes_[node].is_recomputable || begin >= end || end + 1 == nodes_.size()) return {};
  Chain chain(*this, end);
  chain.move_ = {.cuts = {{node, begin}}, .bytes = bytes};
  chain.compute(node);
  if (chain.move_.bytes <= 0) return {};
  return std::move(chain.move_);
}

/// By the step whose outputs they hold: of values written in place, by the last to write.
std::unordered_map<size_t, int64_t> Rematerializer::bytes_at_peak() const {
  const Profile& profile = plan_.profile;
  const Schedule& schedule = plan_.schedule;
  std::unordered_map<size_t, size_t> holders;
  for (size_t value = 0; value < profile.values.size(); ++value) {
    if (schedule.makers[value] >= profile.peak_step) break;
    const bool is_given = profile.values[value].memory < profile.blocks.size();
    if (!is_given || !is_given_again(value)) continue;
    holders[profile.values[value].memory] = step(schedule.makers[value]).root;
  }
  std::unordered_map<size_t, int64_t> bytes;
  for (const auto& [number, holder] : holders) {
    const Block& block = profile.blocks[number];
    if (block.last >= profile.peak_step && block.bytes > 0) bytes[holder] += block.bytes;
  }
  return bytes;
}

/// Returns the moves that lower the peak, the cheapest first.
std::vector<Move> Rematerializer::moves() const {
  const std::unordered_map<size_t, int64_t> bytes = bytes_at_peak();
  std::vector<Move> found;
  for (size_t i = 0; i < plan_.profile.peak_step; ++i) {
    const auto alive = bytes.find(i);
    if (alive == bytes.end()) continue;
    if (auto move = move_of(i, alive->second)) found.push_back(std::move(*move));
  }
  std::ranges::stable_sort(found, {}, &Move::price);
  return found;
}

/// Makes as many moves as bring half of the missing bytes, or fewer, or one.
bool Rematerializer::advance(std::vector<Move> moves) {
  size_t count = 0;
  int64_t bytes = 0;
  while (count < moves.size() && bytes < (plan_.profile.peak_bytes - budget_bytes_) / 2) {
    bytes += moves[count++].bytes;
  }
  for (; count > 1; count /= 2) {
    if (attempt(moves.data(), count)) return true;
  }
  return std::ranges::any_of(moves, [&](const Move& move) { return attempt(&move, 1); });
}

bool Rematerializer::attempt(const Move* moves, size_t count) {
  std::vector<Cut> added;
  for (size_t i = 0; i < count; ++i) {
    for (const Cut& cut : moves[i].cuts) {
      if (add_cut(cut)) added.push_back(cut);
    }
  }
  Plan plan = made();
  if (plan.is_better_than(plan_)) {
    plan_ = std::move(plan);
    return true;
  }
  for (const Cut& cut : added) remove_cut(cut);
  return false;
}

bool Rematerializer::add_cut(Cut cut) {
  auto& cuts = cuts_[cut.node];
  const auto place = std::ranges::lower_bound(cuts, cut.time);
  if (place != cuts.end() && *place == cut.time) return false;
  cuts.insert(place, cut.time);
  return true;
}

void Rematerializer::remove_cut(Cut cut) { std::erase(cuts_[cut.node], cut.time); }

/// Takes back, the dearest first, what the budget has room for.
void Rematerializer::keep_what_fits() {
  std::vector<Cut> all;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (const size_t time : cuts_[node]) all.push_back({node, time});
  }
  std::ranges::stable_sort(all, std::greater(), [&](const Cut& cut) { return prices_[cut.node]; });
  for (const Cut& cut : all) {
    remove_cut(cut);
    const Profile profile = profile_of(nodes_, schedule_of(nodes_, cuts_), budget_bytes_);
    if (profile.peak_bytes > budget_bytes_) add_cut(cut);
  }
  plan_ = made();
}

}  // namespace

FittedSchedule fit_schedule(const std::vector<IndexedNode>& nodes,
                            const std::vector<double>& prices, int64_t budget_bytes) {
  return Rematerializer(nodes, prices, budget_bytes).run();
}

}  // namespace levin::graph
