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
  GatherSimulation(const std::vector<Image>& images,
                   const std::vector<std::vector<size_t>>& reads, size_t backward,
                   int64_t gathered_bytes, std::vector<int64_t> free)
      : images_(images),
        reads_(reads),
        backward_(backward),
        state_(images.size()),
        free_(std::move(free)) {
    for (const int64_t buffer : free_) free_bytes_ += buffer;
    std::map<size_t, int64_t> units;
    int64_t staying = 0;
    for (const Image& image : images) {
      units[image.unit] += image.bytes;
      staying += image.stays ? image.bytes : 0;
    }
    int64_t largest = 0;
    for (const auto& [unit, bytes] : units) largest = std::max(largest, bytes);
    limit_ = gathered_bytes < 0
                 ? INT64_MAX
                 : staying + std::max(
                                 gathered_bytes == 0 ? kUnitsAtATime * largest : gathered_bytes,
                                 largest);
  }

  GatherPlan run() {
    pass(0, backward_);
    pass(backward_, reads_.size());
    for (const State& state : state_) {  // the update drops all
      if (state.is_here) free_.push_back(state.buffer);
    }
    plan_.free = std::move(free_);
    return std::move(plan_);
  }

 private:
  struct State {
    bool is_here = false;
    bool is_coming = false;
    size_t gather = 0;      ///< in the plan
    int64_t buffer = 0;     ///< bytes of its memory
    size_t operation = 0;
  };

  /// What comes next is prefetched: in a step like the last one the order is known.
  void pass(size_t begin, size_t end) {
    std::vector<size_t> order;
    for (size_t i = begin; i < end; ++i) {
      for (const size_t image : reads_[i]) {
        if (std::ranges::find(order, image) == order.end()) order.push_back(image);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      operation_ = i + 1;
      for (const size_t image : reads_[i]) state_[image].operation = operation_;
      bool gathers = false;
      for (const size_t image : reads_[i]) {
        if (state_[image].is_here && !state_[image].is_coming) continue;
        if (!state_[image].is_here) {
          make_room(image);
          start(image, i);
        }
        state_[image].is_coming = false;
        plan_.gathers[state_[image].gather].needed = i;
        gathers = true;
      }
      if (gathers) prefetch(order, i);
    }
  }

  void prefetch(const std::vector<size_t>& order, size_t now) {
    // The next image of the order that the pass reads from here on and that is not here.
    for (const size_t image : order) {
      if (state_[image].is_here || !is_read_after(image, now)) continue;
      if (make_room(image)) start(image, now);
      return;
    }
  }

  bool is_read_after(size_t image, size_t now) const {
    const size_t end = now < backward_ ? backward_ : reads_.size();
    for (size_t i = now + 1; i < end; ++i) {
      if (std::ranges::find(reads_[i], image) != reads_[i].end()) return true;
    }
    return false;
  }

  bool make_room(size_t image) {
    const int64_t bytes = images_[image].bytes;
    for (auto each = gathered_.begin(); used_ + bytes > limit_ && each != gathered_.end();) {
      State& state = state_[*each];
      if (images_[*each].stays || state.is_coming || state.operation == operation_) {
        ++each;
        continue;
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
    plan_.gathers.push_back({.image = image, .started = now, .needed = now});
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
    plan_.most_bytes = std::max(plan_.most_bytes, used_ + free_bytes_);
    return buffer;
  }

  const std::vector<Image>& images_;
  const std::vector<std::vector<size_t>>& reads_;
  size_t backward_;
  std::vector<State> state_;
  std::deque<size_t> gathered_;
  std::vector<int64_t> free_;
  int64_t used_ = 0, free_bytes_ = 0, limit_ = 0;
  size_t operation_ = 0;
  GatherPlan plan_;
};

}  // namespace

GatherPlan plan_gathers(const std::vector<Image>& images,
                        const std::vector<std::vector<size_t>>& reads, size_t backward,
                        int64_t gathered_bytes, std::vector<int64_t> free) {
  return GatherSimulation(images, reads, backward, gathered_bytes, std::move(free)).run();
}

}  // namespace levin::forecast
