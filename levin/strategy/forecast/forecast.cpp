#include "levin/strategy/forecast/forecast.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/collectives/bucket_plan.h"
#include "levin/comm/messages/algorithms.h"
#include "levin/strategy/forecast/gather_plan.h"
#include "levin/strategy/fsdp/cut.h"

namespace levin::forecast {
namespace {

constexpr size_t kMostRings = 2;                  // gradient buffers of a dtype: see gradients_memory.cpp
constexpr int64_t kLargeGradient = 256 << 10;     // computed in its buffer: see gradients_impl.h
constexpr int64_t kAlignmentBytes = 64;

int64_t size_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

at::ScalarType type_on_the_way(const std::string& hook, at::ScalarType type) {
  if (!c10::isFloatingType(type) || hook == "none") return type;
  if (hook == "fp16") return at::kHalf;
  if (hook == "bf16") return at::kBFloat16;
  return at::kFloat;
}

/// Seconds of each operator on the cluster's device.
double seconds_of(const Moment& moment, const Cluster& cluster, double part) {
  const double rate =
      (moment.is_half ? cluster.bfloat16_flops_per_s : cluster.float32_flops_per_s);
  return std::max(moment.flops * part / (rate * cluster.efficiency),
                  moment.bytes * part / (cluster.bytes_per_s * cluster.efficiency)) +
         cluster.operator_s;
}

/// Two queues: operators, and collectives, which run one after another in the order in which they
/// start. A collective that nobody waits for yet is hidden while operators run.
class Clock {
 public:
  Clock(const Cluster& cluster, Forecast& forecast) : cluster_(cluster), forecast_(forecast) {}

  void compute(double seconds) {
    now_ += seconds;
    forecast_.compute_s += seconds;
  }
  /// Starts one now. Returns its number.
  size_t start(std::string name, std::string of, int64_t ranks, int64_t bytes, bool within) {
    const double seconds = collective_seconds(cluster_, name, ranks, bytes, within);
    const double begin = std::max(now_, free_);
    free_ = begin + seconds;
    ends_.push_back(free_);
    forecast_.collectives.push_back({.name = std::move(name),
                                     .of = std::move(of),
                                     .ranks = ranks,
                                     .bytes = bytes,
                                     .seconds = seconds,
                                     .hidden_s = seconds});
    return ends_.size() - 1;
  }
  /// Operators go on when that one has ended.
  void wait(size_t collective) {
    PlannedCollective& planned = forecast_.collectives[collective];
    const double exposed = std::clamp(ends_[collective] - now_, 0.0, planned.seconds);
    planned.hidden_s = planned.seconds - exposed;
    now_ = std::max(now_, ends_[collective]);
  }
  void wait_for_all() {
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (ends_[i] > now_) wait(i);
    }
  }
  void end() {
    wait_for_all();
    forecast_.step_s = now_ + cluster_.overlap_cost * forecast_.hidden_s();
  }

 private:
  const Cluster& cluster_;
  Forecast& forecast_;
  double now_ = 0.0, free_ = 0.0;
  std::vector<double> ends_;
};

/// The common part of all strategies.
class Forecaster {
 public:
  Forecaster(const RecordedStep& step, const Description& description, const Setting& setting,
             const Cluster& cluster)
      : step_(step), model_(description), cluster_(cluster) {
    forecast_.setting = setting;
    forecast_.flops = step.flops;
  }
  virtual ~Forecaster() = default;
  Forecaster(const Forecaster&) = delete;
  Forecaster& operator=(const Forecaster&) = delete;

  Forecast run() {
    add(Kind::kRuntime, static_cast<int64_t>(cluster_.runtime_bytes));
    add(Kind::kBuffers, model_.buffer_bytes);
    add(Kind::kInputs, step_.input_bytes);
    add(Kind::kOptimizer, step_.other_state_bytes);
    add_fixed();
    find_peak();
    Clock clock(cluster_, forecast_);
    run_step(clock);
    clock.end();
    add(Kind::kCommunication, communication_bytes());
    const double step_s = std::max(forecast_.step_s, 1e-12);
    const auto batches =
        static_cast<double>(model_.batches * forecast_.setting.mesh.size());
    forecast_.samples_per_s = static_cast<double>(model_.samples) * batches / step_s;
    forecast_.tokens_per_s = static_cast<double>(step_.tokens) * batches / step_s;
    return std::move(forecast_);
  }

 protected:
  /// Memory that is there all the time.
  virtual void add_fixed() = 0;
  /// Bytes of gradients at an operator, beside what is there all the time. transient: bytes of the
  /// gradient that the operator has just completed.
  virtual int64_t gradients_at(size_t moment, int64_t complete, int64_t transient) const = 0;
  virtual int64_t live_at(size_t moment) const { return step_.moments[moment].live; }
  virtual void run_step(Clock& clock) = 0;

  void add(Kind kind, int64_t bytes) { forecast_.memory[static_cast<size_t>(kind)] += bytes; }

  bool is_update(size_t moment) const { return moment >= step_.update; }
  const Mesh& mesh() const { return forecast_.setting.mesh; }

  std::vector<size_t> trained_in_order_of_arrival() const {
    std::vector<size_t> order;
    for (const Moment& moment : step_.moments) {
      order.insert(order.end(), moment.arrivals.begin(), moment.arrivals.end());
    }
    return order;
  }

  const RecordedStep& step_;
  const Description& model_;
  const Cluster& cluster_;
  Forecast forecast_;

 private:
  /// Reductions over gloo and MPI receive the others' parts in two buffers, in turns
  /// (comm/messages/collectives.cpp).
  int64_t communication_bytes() const {
    const int64_t ranks = mesh().size();
    const Link& link = ranks <= cluster_.ranks_per_node ? cluster_.inside : cluster_.across;
    if (!cluster_.is_cpu() || (link.backend != "gloo" && link.backend != "mpi")) return 0;
    int64_t most = 0;
    for (const PlannedCollective& each : forecast_.collectives) {
      if (each.name != "all_gather") most = std::max(most, each.bytes);
    }
    const auto carrier = link.backend == "gloo" ? comm::Carrier::kGloo : comm::Carrier::kMpi;
    return 2 * std::min(most, comm::algorithms_of(carrier, ranks).chunk_bytes);
  }

  void find_peak() {
    int64_t most = 0, live = 0, gradients = 0, complete = 0;
    for (size_t i = 0; i < step_.moments.size(); ++i) {
      int64_t transient = 0;
      for (const size_t parameter : step_.moments[i].arrivals) {
        transient += model_.parameters[parameter].bytes();
      }
      complete += transient;
      const int64_t gradients_now = gradients_at(i, complete, transient);
      const int64_t live_now = live_at(i);
      if (gradients_now + live_now <= most) continue;
      most = gradients_now + live_now;
      live = live_now;
      gradients = gradients_now;
    }
    add(Kind::kActivations, live);
    add(Kind::kGradients, gradients);
  }
};

class Single : public Forecaster {
 public:
  using Forecaster::Forecaster;

 protected:
  void add_fixed() override {
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      add(Kind::kParameters, model_.parameters[i].bytes());
      add(Kind::kOptimizer, step_.state_bytes[i]);
      trained_bytes_ += model_.parameters[i].trains ? model_.parameters[i].bytes() : 0;
    }
  }
  /// Those of the step before are there until backward begins.
  int64_t gradients_at(size_t moment, int64_t complete, int64_t) const override {
    return moment < step_.backward ? trained_bytes_ : complete;
  }
  void run_step(Clock& clock) override {
    for (const Moment& moment : step_.moments) clock.compute(seconds_of(moment, cluster_, 1.0));
  }

  int64_t trained_bytes_ = 0;
};

/// Gradients lie in buckets, which stay.
class Ddp final : public Single {
 public:
  using Single::Single;

 private:
  void add_fixed() override {
    Single::add_fixed();
    std::vector<comm::PlannedGradient> gradients;
    order_ = trained_in_order_of_arrival();
    for (const PlannedParameter& parameter : model_.parameters) {
      gradients.push_back(
          {parameter.numel(), type_on_the_way(model_.ddp.comm_hook, parameter.type)});
    }
    const auto bytes = [](double mib) { return static_cast<int64_t>(mib * (1 << 20)); };
    buckets_ = comm::plan_buckets(gradients, order_,
                                  {.first_bytes = bytes(model_.ddp.first_bucket_mb),
                                   .bytes = bytes(model_.ddp.bucket_cap_mb)});
    for (const comm::BucketPlan& bucket : buckets_) {
      add(Kind::kGradientBuffers, bucket_bytes(bucket) + (cluster_.is_cpu() ? 0 : flag_bytes(bucket)));
    }
    is_cast_ = model_.ddp.comm_hook != "none";
  }

  /// On CPUs a number for each member, which says whether it was used, goes with the gradients.
  int64_t bucket_bytes(const comm::BucketPlan& bucket) const {
    const int64_t flags = cluster_.is_cpu() ? std::ssize(bucket.members) : 0;
    return (bucket.count + flags) * size_of(bucket.type);
  }
  static int64_t flag_bytes(const comm::BucketPlan& bucket) {
    return std::ssize(bucket.members) * size_of(at::kFloat);
  }

  int64_t gradients_at(size_t moment, int64_t complete, int64_t transient) const override {
    return is_cast_ ? Single::gradients_at(moment, complete, transient) : transient;
  }

  void run_step(Clock& clock) override {
    std::map<size_t, size_t> bucket_of;
    std::vector<size_t> missing;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      for (const size_t member : buckets_[i].members) bucket_of[member] = i;
      missing.push_back(buckets_[i].members.size());
    }
    size_t next = 0;
    for (size_t i = 0; i < step_.moments.size(); ++i) {
      if (i == step_.update) {
        for (; next < buckets_.size(); ++next) start(clock, next);
        clock.wait_for_all();
      }
      clock.compute(seconds_of(step_.moments[i], cluster_, 1.0));
      for (const size_t parameter : step_.moments[i].arrivals) {
        const auto bytes = static_cast<double>(model_.parameters[parameter].bytes());
        clock.compute(2 * bytes / (cluster_.bytes_per_s * cluster_.efficiency));  // into its bucket
        --missing[bucket_of.at(parameter)];
      }
      while (model_.ddp.overlap && next < buckets_.size() && missing[next] == 0) {
        start(clock, next++);
      }
    }
    for (; next < buckets_.size(); ++next) start(clock, next);
  }

  void start(Clock& clock, size_t number) {
    const std::string of = fmt::format("bucket {}", number);
    const bool within = mesh().size() <= cluster_.ranks_per_node;
    clock.start("all_reduce", of, mesh().size(), bucket_bytes(buckets_[number]), within);
    if (cluster_.is_cpu()) return;
    clock.start("all_reduce", of + ", flags", mesh().size(), flag_bytes(buckets_[number]), within);
  }

  std::vector<size_t> order_;
  std::vector<comm::BucketPlan> buckets_;
  bool is_cast_ = false;
};

/// fsdp and zero.
class Sharded final : public Forecaster {
 public:
  using Forecaster::Forecaster;

 private:
  struct UnitOfStep {
    std::vector<size_t> members;        ///< parameters
    std::vector<fsdp::Extent> extents;  ///< beside members
    std::vector<int64_t> runs;          ///< elements of each rank
    at::ScalarType type = at::kFloat;
    int64_t gradient_numel = 0;  ///< elements of the members that train
    std::vector<int64_t> gradient_runs;
    at::ScalarType gradient_type = at::kFloat;
    size_t missing = 0;
  };

  int64_t num_shards() const { return mesh().shard; }
  bool is_shared() const {
    return cluster_.shares_memory() && mesh().size() <= cluster_.ranks_per_node &&
           mesh().replicate == 1;
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
    for (UnitOfStep& unit : units_) {
      if (unit.members.empty()) continue;
      unit.type = model_.parameters[unit.members.front()].type;
      unit.extents = extents_of(unit.members, unit.type);
      unit.runs = fsdp::cut_unit(unit.extents, num_shards(), at);
      const bool widens = model_.fsdp.reduce_in_float32 && c10::isReducedFloatingType(unit.type);
      unit.gradient_type = widens ? at::kFloat : unit.type;
      unit.gradient_runs.assign(static_cast<size_t>(num_shards()), 0);
      for (size_t place = 0; place < unit.members.size(); ++place) {
        if (!model_.parameters[unit.members[place]].trains) continue;
        const fsdp::Extent& extent = unit.extents[place];
        const std::vector<int64_t> rows = fsdp::rows_in_runs(extent, unit.runs);
        for (size_t rank = 0; rank < rows.size(); ++rank) {
          unit.gradient_runs[rank] += rows[rank] * extent.row_numel;
        }
        unit.gradient_numel += extent.num_rows * extent.row_numel;
      }
    }
  }

  std::vector<fsdp::Extent> extents_of(const std::vector<size_t>& members,
                                       at::ScalarType type) const {
    std::vector<std::vector<int64_t>> sizes;
    for (const size_t member : members) sizes.push_back(model_.parameters[member].sizes);
    return fsdp::extents_of(sizes, std::max<int64_t>(kAlignmentBytes / size_of(type), 1));
  }

  /// The rank that has most elements.
  size_t largest_rank() const {
    std::vector<int64_t> bytes(static_cast<size_t>(num_shards()), 0);
    for (const UnitOfStep& unit : units_) {
      for (size_t rank = 0; rank < unit.runs.size(); ++rank) {
        bytes[rank] += unit.runs[rank] * size_of(unit.type);
      }
    }
    return static_cast<size_t>(std::ranges::max_element(bytes) - bytes.begin());
  }

  void add_fixed() override {
    make_units();
    const size_t rank = largest_rank();
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
      add(Kind::kParameters, unit.runs[rank] * size_of(unit.type));
      add(Kind::kGradients, unit.gradient_runs[rank] * size_of(unit.gradient_type));
      for (size_t place = 0; place < unit.members.size(); ++place) {
        const fsdp::Extent& extent = unit.extents[place];
        if (extent.num_rows == 0) continue;
        const int64_t rows = fsdp::rows_in_runs(extent, unit.runs)[rank];
        add(Kind::kOptimizer, step_.state_bytes[unit.members[place]] / extent.num_rows * rows);
      }
      if (unit.gradient_numel == 0) continue;
      auto& [most, parts] = rings[unit.gradient_type];
      most = std::max(most, unit.gradient_numel);
      ++parts;
    }
    for (const auto& [type, ring] : rings) {
      add(Kind::kGradientBuffers, ring.first * size_of(type) *
                                      static_cast<int64_t>(std::min(ring.second, kMostRings)));
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
      std::map<at::ScalarType, std::vector<size_t>> members;
      for (const size_t member : unit.members) {
        const auto type = casts ? step_.cast_to[member] : std::nullopt;
        members[type.value_or(unit.type)].push_back(member);
      }
      for (const auto& [type, of_type] : members) {
        for (const size_t member : of_type) image_of[member] = images_.size();
        const int64_t numel = extents_of(of_type, type).back().end();
        images_.push_back({number, numel * size_of(type), model_.units[number].is_rest});
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

  /// Which parameters are cast shows in the first step, whose buffers serve the steps after it. In
  /// these, steps may take turns: one gathers what the next one finds prefetched. The plan is that
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
      if (step == 1) before.forward_order.clear();  // other images from here on
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
        const size_t number =
            clock.start("all_gather", model_.units[image.unit].name, num_shards(), image.bytes,
                        num_shards() <= cluster_.ranks_per_node);
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
    if (unit.gradient_numel == 0 || num_shards() * mesh().replicate < 2) return;
    const std::string& name = model_.units[number].name;
    const int64_t bytes = unit.gradient_numel * size_of(unit.gradient_type);
    const int64_t own = *std::ranges::max_element(unit.gradient_runs) * size_of(unit.gradient_type);
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
      clock.start("all_reduce", "flags of used parameters", mesh().size(),
                  numbers * size_of(at::kDouble), mesh().size() <= cluster_.ranks_per_node);
    }
    clock.wait_for_all();
  }

  std::vector<UnitOfStep> units_;
  std::vector<Image> images_;
  GatherPlan gathers_;
};

void check(const Setting& setting) {
  const Mesh& mesh = setting.mesh;
  LEVIN_CHECK(setting.strategy != "single" || mesh.size() == 1, "strategy.forecast.mesh",
              "got strategy single on a mesh of {} ranks, wanted 1; set --strategy ddp",
              mesh.size());
  LEVIN_CHECK(setting.strategy != "ddp" || mesh.shard == 1, "strategy.forecast.mesh",
              "got strategy ddp on {}, which keeps the whole model on each rank; name the axis dp, "
              "or set --strategy fsdp",
              to_text(mesh));
}

}  // namespace

Mesh mesh_of(std::string_view text) {
  Mesh mesh;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t equals = one.find('=');
    const std::string_view axis = one.substr(0, equals);
    int64_t size = 0;
    if (equals != std::string_view::npos) from_text(one.substr(equals + 1), size);
    const bool replicates = axis == "dp" || axis == "replicate";
    LEVIN_CHECK((replicates || axis == "fsdp" || axis == "shard") && size >= 1,
                "strategy.forecast.mesh",
                "got '{}' in the mesh '{}', wanted dp=N or fsdp=N with N of at least 1, such as "
                "dp=64,fsdp=8",
                one, text);
    (replicates ? mesh.replicate : mesh.shard) *= size;
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  if (mesh.shard == 1) return fmt::format("dp={}", mesh.replicate);
  if (mesh.replicate == 1) return fmt::format("fsdp={}", mesh.shard);
  return fmt::format("dp={},fsdp={}", mesh.replicate, mesh.shard);
}

std::string Setting::name() const {
  return strategy == "zero" ? fmt::format("zero {}", zero_stage) : strategy;
}

Setting setting_of(std::string_view strategy, const Mesh& mesh) {
  Setting setting{.strategy = std::string(strategy), .mesh = mesh};
  if (strategy.starts_with("zero")) {
    setting.strategy = "zero";
    strategy.remove_prefix(4);
    if (strategy.starts_with("-") || strategy.starts_with(" ")) strategy.remove_prefix(1);
    if (!strategy.empty()) setting.zero_stage = strategy.size() == 1 ? strategy[0] - '0' : 0;
  }
  const bool is_known = setting.strategy == "single" || setting.strategy == "ddp" ||
                        setting.strategy == "fsdp" ||
                        (setting.strategy == "zero" && setting.zero_stage >= 1 &&
                         setting.zero_stage <= 3);
  LEVIN_CHECK(is_known, "strategy.forecast.strategy",
              "got strategy '{}', wanted single, ddp, zero1, zero2, zero3 or fsdp", setting.strategy);
  // One axis alone is the one that is split.
  const bool shards = setting.strategy == "fsdp" || setting.strategy == "zero";
  if (shards && mesh.shard == 1) setting.mesh = {.replicate = 1, .shard = mesh.replicate};
  return setting;
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[kNumKinds] = {
      "parameters", "gradients",   "gradient buffers", "optimizer state", "buffers",
      "inputs",     "activations", "gathered units",   "communication",   "process"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t Forecast::memory_bytes() const {
  return std::accumulate(memory.begin(), memory.end(), int64_t{0});
}

int64_t Forecast::collective_bytes(std::string_view name) const {
  int64_t bytes = 0;
  for (const PlannedCollective& each : collectives) {
    if (name.empty() || each.name == name) bytes += each.bytes;
  }
  return bytes;
}

double Forecast::hidden_s() const {
  double seconds = 0.0;
  for (const PlannedCollective& each : collectives) seconds += each.hidden_s;
  return seconds;
}

double Forecast::collective_s() const {
  double seconds = 0.0;
  for (const PlannedCollective& each : collectives) seconds += each.seconds;
  return seconds;
}

Forecast forecast_of(const RecordedStep& step, const Description& description,
                     const Setting& setting, const Cluster& cluster) {
  check(setting);
  if (setting.strategy == "single" || (setting.strategy == "ddp" && setting.mesh.size() == 1)) {
    return Single(step, description, setting, cluster).run();
  }
  if (setting.strategy == "ddp") return Ddp(step, description, setting, cluster).run();
  return Sharded(step, description, setting, cluster).run();
}

std::vector<Setting> candidates(int64_t ranks, const Cluster& cluster) {
  const Mesh all{.replicate = ranks};
  if (ranks == 1) return {setting_of("single", all)};
  std::vector<Setting> settings;
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    settings.push_back(setting_of(strategy, all));
  }
  const int64_t node = cluster.ranks_per_node;
  if (node > 1 && ranks > node && ranks % node == 0) {
    settings.push_back(setting_of("fsdp", {.replicate = ranks / node, .shard = node}));
  }
  return settings;
}

Choice choose(const std::vector<Forecast>& forecasts, double memory_bytes) {
  constexpr double kGiga = 1e9;
  Choice choice;
  size_t num_fit = 0;
  const Forecast* smallest = nullptr;
  for (size_t i = 0; i < forecasts.size(); ++i) {
    const Forecast& each = forecasts[i];
    if (smallest == nullptr || each.memory_bytes() < smallest->memory_bytes()) smallest = &each;
    if (static_cast<double>(each.memory_bytes()) > memory_bytes) continue;
    ++num_fit;
    if (!choice.best || each.step_s < forecasts[*choice.best].step_s) choice.best = i;
  }
  if (!choice.best) {
    choice.reason = smallest == nullptr
                        ? "there is nothing to choose from"
                        : fmt::format("none fits {:.4g} GB; {} on {} needs least, {:.4g} GB",
                                      memory_bytes / kGiga, smallest->setting.name(),
                                      to_text(smallest->setting.mesh),
                                      static_cast<double>(smallest->memory_bytes()) / kGiga);
    return choice;
  }
  const Forecast& best = forecasts[*choice.best];
  choice.reason = fmt::format(
      "{} on {}: the fastest of the {} that fit {:.4g} GB ({:.4g} GB a rank, {:.4g} s a step)",
      best.setting.name(), to_text(best.setting.mesh), num_fit, memory_bytes / kGiga,
      static_cast<double>(best.memory_bytes()) / kGiga, best.step_s);
  return choice;
}

}  // namespace levin::forecast
