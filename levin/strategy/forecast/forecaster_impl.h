#pragma once
// Forecaster: what the forecasts of all strategies have in common: the memory at the peak, and the clock of a
// step's operators and collectives.
// Not for users.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/comm/messages/algorithms.h"
#include "levin/strategy/forecast/forecast.h"

namespace levin::forecast {

inline int64_t size_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

/// Seconds of a part of an operator's work on the cluster's device.
inline double seconds_of(const Moment& moment, const Cluster& cluster, double part) {
  return operator_seconds(cluster, moment.flops * part, moment.bytes * part, moment.is_half);
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
    const auto batches = static_cast<double>(model_.batches * forecast_.setting.mesh.size());
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
  /// (comm/messages/collectives.cpp). Each group has its own: under HSDP the ranks of a copy, the
  /// replicas of a shard, and all ranks.
  int64_t communication_bytes() const {
    const int64_t ranks = mesh().size();
    const Link& link = ranks <= cluster_.ranks_per_node ? cluster_.inside : cluster_.across;
    if (!cluster_.is_cpu() || (link.backend != "gloo" && link.backend != "mpi")) return 0;
    const bool has_groups = mesh().replicate > 1 && mesh().shard > 1;
    std::map<std::pair<std::string, int64_t>, int64_t> most;  // by group
    for (const PlannedCollective& each : forecast_.collectives) {
      if (each.name == "all_gather") continue;
      int64_t& bytes = most[{has_groups ? each.name : "", has_groups ? each.ranks : ranks}];
      bytes = std::max(bytes, each.bytes);
    }
    const auto carrier = link.backend == "gloo" ? comm::Carrier::kGloo : comm::Carrier::kMpi;
    int64_t all = 0;
    for (const auto& [group, bytes] : most) {
      all += 2 * std::min(bytes, comm::algorithms_of(carrier, group.second).chunk_bytes);
    }
    return all;
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

/// Makes the forecaster of single and ddp.
std::unique_ptr<Forecaster> make_replicated(const RecordedStep& step,
                                            const Description& description, const Setting& setting,
                                            const Cluster& cluster);
/// Makes the forecaster of zero and fsdp.
std::unique_ptr<Forecaster> make_sharded(const RecordedStep& step, const Description& description,
                                         const Setting& setting, const Cluster& cluster);

}  // namespace levin::forecast
