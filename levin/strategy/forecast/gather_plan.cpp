#include "levin/strategy/forecast/gather_plan.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace levin::forecast {
namespace {

constexpr int64_t kUnitsAtATime = 3;

class GatherSimulation {
 public:
  GatherSimulation(const std::vector<Image>& images, const std::vector<std::vector<size_t>>& reads,
                   size_t backward, int64_t gathered_bytes, GatherState before)
      : images_(images),
        reads_(reads),
        backward_(backward),
        state_(images.size()),
        last_order_(std::move(before.forward_order)),
        free_(std::move(before.free)) {
    for (const int64_t buffer : free_) free_bytes_ += buffer;
    for (const size_t image : before.parts) add_part(image);
    std::map<size_t, int64_t> units;
    int64_t staying = 0;
    for (const Image& image : images) {
      units[image.unit] += image.bytes;
      staying += image.stays ? image.bytes : 0;
    }
    int64_t largest = 0;
    for (const auto& [unit, bytes] : units) largest = std::max(largest, bytes);
    limit_ =
        gathered_bytes < 0
            ? INT64_MAX
            : staying +
                  std::max(gathered_bytes == 0 ? kUnitsAtATime * largest : gathered_bytes, largest);
  }

  GatherPlan run() {
    pass(0, backward_);
    pass(backward_, reads_.size());
    for (const State& state : state_) {  // the update drops all
      if (state.is_here) free_.push_back(state.buffer);
    }
    for (size_t image = 0; image < state_.size(); ++image) {
      if (state_[image].has_memory) plan_.left.parts.push_back(image);
    }
    plan_.left.free = std::move(free_);
    return std::move(plan_);
  }

 private:
  struct State {
    bool is_here = false;
    bool is_coming = false;
    bool has_part = false;    ///< neighbouring ranks keep parts
    bool has_memory = false;  ///< for a part
    size_t gather = 0;        ///< in the plan
    int64_t buffer = 0;       ///< bytes of its memory
    size_t operation = 0;
  };

  void pass(size_t begin, size_t end) {
    const bool is_forward = begin == 0;
    is_forward_ = is_forward;
    now_.clear();
    follows_ = true;
    next_ = 0;
    expected_.clear();
    for (size_t i = begin; i < end && !is_forward; ++i) {
      for (const size_t image : reads_[i]) {
        if (std::ranges::find(expected_, image) == expected_.end()) expected_.push_back(image);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      operation_ = i + 1;
      for (const size_t image : reads_[i]) state_[image].operation = operation_;
      bool gathers = false;
      for (const size_t image : reads_[i]) {
        if (state_[image].is_here && !state_[image].is_coming) continue;
        note(image, is_forward);
        if (!state_[image].is_here) {
          make_room(image);
          start(image, i);
        }
        state_[image].is_coming = false;
        plan_.gathers[state_[image].gather].needed = i;
        gathers = true;
      }
      const std::optional<size_t> next = gathers ? next_expected(is_forward) : std::nullopt;
      if (next && !state_[*next].is_here && make_room(*next)) start(*next, i);
    }
    if (is_forward) plan_.left.forward_order = now_;
  }

  void note(size_t image, bool is_forward) {
    follows_ = follows_ && now_.size() < last_order_.size() && last_order_[now_.size()] == image;
    now_.push_back(image);
    if (is_forward) return;
    const auto found =
        std::find(expected_.begin() + static_cast<std::ptrdiff_t>(next_), expected_.end(), image);
    if (found != expected_.end()) next_ = static_cast<size_t>(found - expected_.begin()) + 1;
  }

  /// In backward what its graph reads next and is not here; in forward what the last one gathered
  /// next.
  std::optional<size_t> next_expected(bool is_forward) const {
    if (is_forward) {
      const bool knows = follows_ && now_.size() < last_order_.size();
      return knows ? std::optional(last_order_[now_.size()]) : std::nullopt;
    }
    for (size_t i = next_; i < expected_.size(); ++i) {
      if (!state_[expected_[i]].is_here) return expected_[i];
    }
    return std::nullopt;
  }

  bool make_room(size_t image) {
    const int64_t bytes = images_[image].bytes;
    for (auto each = gathered_.begin(); used_ + bytes > limit_ && each != gathered_.end();) {
      State& state = state_[*each];
      if (images_[*each].stays || state.is_coming || state.operation == operation_) {
        ++each;
        continue;
      }
      if (is_forward_ && images_[*each].near > 1 && !state.has_part) {
        state.has_part = true;
        add_part(*each);
      }
      state.is_here = false;
      used_ -= state.buffer;
      free_.push_back(state.buffer);
      free_bytes_ += state.buffer;
      each = gathered_.erase(each);
    }
    return used_ + bytes <= limit_;
  }

  void start(size_t image, size_t now) {
    State& state = state_[image];
    state.buffer = take_buffer(images_[image].bytes);
    state.is_here = state.is_coming = true;
    state.gather = plan_.gathers.size();
    gathered_.push_back(image);
    plan_.gathers.push_back(
        {.image = image, .started = now, .needed = now, .is_near = state.has_part});
  }

  /// A part has memory from its first step on.
  void add_part(size_t image) {
    if (images_[image].near == 1 || std::exchange(state_[image].has_memory, true)) return;
    part_bytes_ += (images_[image].bytes + images_[image].near - 1) / images_[image].near;
    note_memory();
  }

  void note_memory() {
    plan_.most_bytes = std::max(plan_.most_bytes, used_ + free_bytes_ + part_bytes_);
  }

  int64_t take_buffer(int64_t bytes) {
    auto best = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each) {
      if (*each >= bytes && (best == free_.end() || *each < *best)) best = each;
    }
    int64_t buffer = bytes;
    if (best != free_.end()) {
      buffer = *best;
      free_bytes_ -= buffer;
      free_.erase(best);
    } else {
      while (!free_.empty() && used_ + free_bytes_ + bytes > limit_) {
        free_bytes_ -= free_.back();
        free_.pop_back();
      }
    }
    used_ += buffer;
    note_memory();
    return buffer;
  }

  const std::vector<Image>& images_;
  const std::vector<std::vector<size_t>>& reads_;
  size_t backward_;
  std::vector<State> state_;
  std::deque<size_t> gathered_;
  std::vector<size_t> last_order_;
  std::vector<size_t> now_;       ///< as this pass gathers
  std::vector<size_t> expected_;  ///< in backward
  size_t next_ = 0;               ///< in expected_
  bool follows_ = false;          ///< this pass, the last forward so far
  std::vector<int64_t> free_;
  bool is_forward_ = true;
  int64_t used_ = 0, free_bytes_ = 0, part_bytes_ = 0, limit_ = 0;
  size_t operation_ = 0;
  GatherPlan plan_;
};

}  // namespace

GatherPlan plan_gathers(const std::vector<Image>& images,
                        const std::vector<std::vector<size_t>>& reads, size_t backward,
                        int64_t gathered_bytes, GatherState before) {
  return GatherSimulation(images, reads, backward, gathered_bytes, std::move(before)).run();
}

}  // namespace levin::forecast
