// Forecasts of strategies that shard parameters, gradients and optimizer state: fsdp, zero and HSDP.
#include <map>

#include "levin/strategy/forecast/forecaster_impl.h"
#include "levin/strategy/forecast/gather_plan.h"
#include "levin/strategy/fsdp/plan_units.h"
#include "levin/strategy/fsdp/resharding.h"
#include "levin/strategy/fsdp/unit_layout.h"

namespace levin::forecast {
namespace {

constexpr size_t kMostRings = 2;  // gradient buffers of a dtype: see gradients_memory.cpp
constexpr int64_t kLargeGradient = 256 << 10;  // computed in its buffer: see gradients_impl.h
constexpr int64_t kAlignmentBytes = 64;

/// fsdp and zero.
class Sharded final : public Forecaster {
 public:
  using Forecaster::Forecaster;

 private:
  struct UnitOfStep {
    std::vector<size_t> members;  ///< parameters
    fsdp::UnitLayout layout;      ///< of the members
    at::ScalarType type = at::kFloat;
    fsdp::UnitLayout gradients;  ///< of the members that train
    at::ScalarType gradient_type = at::kFloat;
    size_t missing = 0;
  };

  int64_t num_shards() const { return mesh().shard; }
  bool is_shared() const {
    return cluster_.shares_memory() && num_shards() <= cluster_.ranks_per_node;
  }

  /// zero 2 and 3 reduce after each batch of an accumulation window. Else a rank keeps whole
  /// gradients of the batches before the last one.
  int64_t num_reductions() const {
    const Setting& setting = forecast_.setting;
    return setting.strategy == "zero" && setting.zero_stage > 1 ? model_.batches : 1;
  }

  void make_units() {
    units_.resize(model_.units.size());
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      const PlannedParameter& parameter = model_.parameters[i];
      if (parameter.unit >= 0) units_[static_cast<size_t>(parameter.unit)].members.push_back(i);
    }
    const auto at = model_.fsdp.cut == "owned" ? fsdp::CutAt::kParameters : fsdp::CutAt::kRows;
    for (size_t number = 0; number < units_.size(); ++number) {
      UnitOfStep& unit = units_[number];
      if (unit.members.empty()) continue;
      unit.type = model_.parameters[unit.members.front()].type;
      std::vector<std::vector<int64_t>> sizes;
      std::vector<size_t> trained;
      for (size_t place = 0; place < unit.members.size(); ++place) {
        const PlannedParameter& parameter = model_.parameters[unit.members[place]];
        sizes.push_back(parameter.sizes);
        if (parameter.trains) trained.push_back(place);
      }
      unit.layout = {sizes, alignment_of(unit.type), num_shards(), at};
      unit.gradients = unit.layout.only(trained, /*alignment=*/1);
      unit.gradient_type =
          fsdp::reduce_dtype_of(model_.fsdp, model_.units[number].options.reduce_dtype, unit.type);
    }
  }

  static int64_t alignment_of(at::ScalarType type) {
    return std::max<int64_t>(kAlignmentBytes / size_of(type), 1);
  }

  /// The rank that has most elements.
  size_t largest_rank() const {
    std::vector<int64_t> bytes(static_cast<size_t>(num_shards()), 0);
    for (const UnitOfStep& unit : units_) {
      for (size_t rank = 0; rank < unit.layout.runs().size(); ++rank) {
        bytes[rank] += unit.layout.runs()[rank] * size_of(unit.type);
      }
    }
    return static_cast<size_t>(std::ranges::max_element(bytes) - bytes.begin());
  }

  void add_fixed() override {
    make_units();
    const size_t rank = rank_ = largest_rank();
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      if (model_.parameters[i].unit >= 0) continue;
      add(Kind::kParameters, model_.parameters[i].bytes());
      add(Kind::kOptimizer, step_.state_bytes[i]);
    }
    if (model_.batches > num_reductions()) {
      for (const PlannedParameter& parameter : model_.parameters) {
        add(Kind::kGradients, parameter.trains && parameter.unit >= 0 ? parameter.bytes() : 0);
      }
    }
    std::map<at::ScalarType, std::pair<int64_t, size_t>> rings;  // most elements, parts
    for (const UnitOfStep& unit : units_) {
      if (unit.members.empty()) continue;
      add(Kind::kParameters, unit.layout.runs()[rank] * size_of(unit.type));
      add(Kind::kGradients, unit.gradients.runs()[rank] * size_of(unit.gradient_type));
      for (size_t place = 0; place < unit.members.size(); ++place) {
        const size_t member = unit.members[place];
        const int64_t num_rows = model_.parameters[member].sizes.front();
        add(Kind::kOptimizer, step_.state_bytes[member] / num_rows * unit.layout.rows(place)[rank]);
      }
      if (unit.gradients.numel() == 0) continue;
      auto& [most, parts] = rings[unit.gradient_type];
      most = std::max(most, unit.gradients.numel());
      ++parts;
    }
    for (const auto& [type, ring] : rings) {
      add(Kind::kGradientBuffers,
          ring.first * size_of(type) * static_cast<int64_t>(std::min(ring.second, kMostRings)));
    }
    if (!is_shared() && num_shards() > 1) add_gathers();
  }

  /// The images of units, and which of them each operator reads. casts: what autocast casts is
  /// gathered in the dtype of the cast; else units are gathered as they are.
  std::vector<std::vector<size_t>> find_images(bool casts) {
    images_.clear();
    std::map<size_t, size_t> image_of;  // by parameter
    for (size_t number = 0; number < units_.size(); ++number) {
      const UnitOfStep& unit = units_[number];
      std::map<at::ScalarType, std::vector<size_t>> places;
      for (size_t place = 0; place < unit.members.size(); ++place) {
        const auto type = casts ? step_.cast_to[unit.members[place]] : std::nullopt;
        places[type.value_or(unit.type)].push_back(place);
      }
      const PlannedUnit& planned = model_.units[number];
      const int64_t near =
          fsdp::ranks_after_forward(model_.fsdp, planned.options.reshard_after_forward,
                                    planned.is_rest, planned.name, num_shards());
      for (const auto& [type, of_type] : places) {
        for (const size_t place : of_type) image_of[unit.members[place]] = images_.size();
        const int64_t numel = unit.layout.only(of_type, alignment_of(type)).numel();
        images_.push_back({.unit = number,
                           .bytes = numel * size_of(type),
                           .stays = fsdp::stays_gathered(
                               model_.fsdp, planned.options.reshard_after_forward, planned.is_rest),
                           .near = near < num_shards() ? near : 1});
      }
    }
    std::vector<std::vector<size_t>> reads(std::min(step_.update, step_.moments.size()));
    for (size_t i = 0; i < reads.size(); ++i) {
      for (const size_t parameter : step_.moments[i].reads) {
        const auto image = image_of.find(parameter);
        if (image == image_of.end()) continue;
        if (std::ranges::find(reads[i], image->second) == reads[i].end()) {
          reads[i].push_back(image->second);
        }
      }
    }
    return reads;
  }

  /// Which parameters are cast shows in the first step. In those after it, steps may take turns: one gathers what the next one finds prefetched. The plan is that
  /// of the step that gathers more.
  void add_gathers() {
    constexpr int kSteps = 5;
    const bool keeps = forecast_.setting.strategy == "zero" && forecast_.setting.zero_stage < 3;
    const double mb = model_.fsdp.gathered_mb;
    const auto limit = keeps || mb < 0 ? int64_t{-1} : static_cast<int64_t>(mb * (1 << 20));
    int64_t most = 0;
    GatherState before;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<std::vector<size_t>> reads = find_images(/*casts=*/step > 0);
      if (step == 1) before = {};  // other images from here on, in buffers of their own
      GatherPlan plan = plan_gathers(images_, reads, step_.backward, limit, std::move(before));
      most = std::max(most, plan.most_bytes);
      before = std::move(plan.left);
      const bool is_last = step + 2 >= kSteps;
      if (is_last && gathered_bytes(plan) > gathered_bytes(gathers_)) gathers_ = std::move(plan);
    }
    add(Kind::kGathered, most);
  }

  int64_t gathered_bytes(const GatherPlan& plan) const {
    int64_t bytes = 0;
    for (const Gather& gather : plan.gathers) bytes += images_[gather.image].bytes;
    return bytes;
  }

  /// Large gradients are computed in their place in a buffer, small ones copied there.
  int64_t gradients_at(size_t moment, int64_t, int64_t) const override {
    int64_t bytes = 0;
    for (const size_t parameter : step_.moments[moment].arrivals) {
      const int64_t size = model_.parameters[parameter].bytes();
      if (size < kLargeGradient || model_.parameters[parameter].unit < 0) bytes += size;
    }
    return bytes;
  }

  /// Gathered parameters in autocast's dtype are no copies, and the update works on shards.
  int64_t live_at(size_t moment) const override {
    const Moment& now = step_.moments[moment];
    const int64_t live = images_.empty() ? now.live : now.live - now.casts;
    return is_update(moment) ? live / num_shards() : live;
  }

  void run_step(Clock& clock) override {
    std::vector<size_t> left;
    for (const UnitOfStep& unit : units_) {
      size_t count = 0;
      for (const size_t member : unit.members) count += model_.parameters[member].trains ? 1 : 0;
      left.push_back(count);
    }
    size_t next = 0;
    std::map<size_t, std::vector<size_t>> waits;  // by operator: gathers that it needs
    for (size_t i = 0; i < step_.moments.size(); ++i) {
      if (i == step_.update) end_backward(clock, left);
      for (; next < gathers_.gathers.size() && gathers_.gathers[next].started == i; ++next) {
        const Gather& gather = gathers_.gathers[next];
        const Image& image = images_[gather.image];
        const int64_t ranks = gather.is_near ? image.near : num_shards();
        const size_t number = clock.start("all_gather", model_.units[image.unit].name, ranks,
                                          image.bytes, ranks <= cluster_.ranks_per_node);
        waits[gather.needed].push_back(number);
      }
      if (const auto needed = waits.find(i); needed != waits.end()) {
        for (const size_t number : needed->second) clock.wait(number);
      }
      const double part = is_update(i) ? 1.0 / static_cast<double>(num_shards()) : 1.0;
      clock.compute(seconds_of(step_.moments[i], cluster_, part));
      for (const size_t parameter : step_.moments[i].arrivals) {
        const int64_t number = model_.parameters[parameter].unit;
        if (number < 0) continue;
        const int64_t bytes = model_.parameters[parameter].bytes();
        if (bytes < kLargeGradient) {
          clock.compute(2 * static_cast<double>(bytes) / cluster_.bytes_per_s);
        }
        if (--left[static_cast<size_t>(number)] == 0) reduce(clock, static_cast<size_t>(number));
      }
    }
    if (step_.update >= step_.moments.size()) end_backward(clock, left);
    if (is_shared() && mesh().size() > 1) {  // other ranks may read the new rows
      clock.start("all_reduce", "update", mesh().size(), size_of(at::kFloat), true);
    }
  }

  void reduce(Clock& clock, size_t number) {
    const UnitOfStep& unit = units_[number];
    if (unit.gradients.numel() == 0 || num_shards() * mesh().replicate < 2) return;
    const std::string& name = model_.units[number].name;
    const int64_t bytes = unit.gradients.numel() * size_of(unit.gradient_type);
    const int64_t own = unit.gradients.runs()[rank_] * size_of(unit.gradient_type);
    for (int64_t i = 0; i < num_reductions(); ++i) {
      if (num_shards() > 1) {
        clock.start("reduce_scatter", name, num_shards(), bytes,
                    num_shards() <= cluster_.ranks_per_node);
      }
      if (mesh().replicate < 2) continue;
      clock.start("all_reduce", name, mesh().replicate, own,
                  mesh().size() <= cluster_.ranks_per_node);
    }
  }

  /// Parameters of more than one element that are not sharded, one after another.
  void reduce_ignored(Clock& clock) {
    for (const PlannedParameter& parameter : model_.parameters) {
      if (parameter.unit >= 0 || !parameter.trains || parameter.numel() < 2) continue;
      const bool widens =
          model_.fsdp.reduce_in_float32 && c10::isReducedFloatingType(parameter.type);
      clock.start("all_reduce", parameter.name, mesh().size(),
                  parameter.numel() * size_of(widens ? at::kFloat : parameter.type),
                  mesh().size() <= cluster_.ranks_per_node);
    }
  }

  /// Units whose gradients did not all come, then the flags of used parameters.
  void end_backward(Clock& clock, const std::vector<size_t>& left) {
    int64_t numbers = 0;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (left[i] > 0) reduce(clock, i);
      const bool has_gradients =
          c10::isFloatingType(units_[i].type) || c10::isComplexType(units_[i].type);
      if (has_gradients) numbers += std::ssize(units_[i].members);
    }
    for (const PlannedParameter& parameter : model_.parameters) {
      if (parameter.unit < 0 && parameter.numel() > 0) numbers += 3;
    }
    for (int64_t i = 0; i < num_reductions() && mesh().size() > 1; ++i) {
      reduce_ignored(clock);
      clock.start("all_reduce", "flags of used parameters", mesh().size(),
                  numbers * size_of(at::kDouble), mesh().size() <= cluster_.ranks_per_node);
    }
    clock.wait_for_all();
  }

  std::vector<UnitOfStep> units_;
  size_t rank_ = 0;  ///< of which the forecast is: the one that has most
  std::vector<Image> images_;
  GatherPlan gathers_;
};

}  // namespace

std::unique_ptr<Forecaster> make_sharded(const RecordedStep& step, const Description& description,
                                         const Setting& setting, const Cluster& cluster) {
  return std::make_unique<Sharded>(step, description, setting, cluster);
}

}  // namespace levin::forecast
