// Forecasts of strategies that keep the whole model on each rank: single and ddp.
#include <fmt/format.h>

#include <map>

#include "levin/comm/collectives/bucket_plan.h"
#include "levin/strategy/forecast/forecaster_impl.h"

namespace levin::forecast {
namespace {

at::ScalarType type_on_the_way(const std::string& hook, at::ScalarType type) {
  if (!c10::isFloatingType(type) || hook == "none") return type;
  if (hook == "fp16") return at::kHalf;
  if (hook == "bf16") return at::kBFloat16;
  return at::kFloat;
}

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
  /// Gradients of the step before are there until backward begins.
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
      add(Kind::kGradientBuffers,
          bucket_bytes(bucket) + (cluster_.is_cpu() ? 0 : flag_bytes(bucket)));
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

}  // namespace

std::unique_ptr<Forecaster> make_replicated(const RecordedStep& step,
                                            const Description& description, const Setting& setting,
                                            const Cluster& cluster) {
  if (setting.strategy == "single" || setting.mesh.size() == 1) {
    return std::make_unique<Single>(step, description, setting, cluster);
  }
  return std::make_unique<Ddp>(step, description, setting, cluster);
}

}  // namespace levin::forecast
