#include <ATen/ops/empty.h>

#include "levin/base/check.h"
#include "levin/observe/log_book_impl.h"
#include "levin/observe/reduction.h"

namespace levin::detail {
namespace {

Reduction::Kind kind_of(std::string_view name, std::string_view reduce) {
  if (reduce == "mean") return Reduction::Kind::kMean;
  if (reduce == "sum") return Reduction::Kind::kSum;
  if (reduce == "min") return Reduction::Kind::kMin;
  if (reduce == "max") return Reduction::Kind::kMax;
  LEVIN_FAIL("observe.log.reduce", "'{}' got reduce '{}', wanted mean, sum, min or max", name,
             reduce);
}

}  // namespace

LogEntry::LogEntry(std::string_view name, int64_t loader, LogSettings settings, bool is_metric)
    : name(name),
      loader(loader),
      settings(std::move(settings)),
      is_metric(is_metric),
      epoch(kind_of(name, this->settings.reduce)) {}

bool LogEntry::shown_to(LogTarget target) const {
  if (target == LogTarget::kLogger) return settings.logger;
  return target == LogTarget::kCallbacks || settings.prog_bar;
}

void LogEntry::show(const std::vector<double>& values, std::string_view suffix, LogTarget target,
                    Scalars& scalars) const {
  const bool forked = settings.on_step && settings.on_epoch;
  const bool is_single = metric == nullptr || metric->is_scalar();
  const std::string of_loader =
      loader == kNoLoader ? "" : "/dataloader_idx_" + std::to_string(loader);
  for (size_t i = 0; i < values.size(); ++i) {
    std::string full = name;
    if (!is_single)
      full += '/' + (settings.labels.empty() ? std::to_string(i) : settings.labels[i]);
    if (!forked || target == LogTarget::kCallbacks) {
      scalars.push_back({full + of_loader, values[i]});
    }
    if (forked) scalars.push_back({full.append(suffix) + of_loader, values[i]});
  }
}

void LogEntry::check_labels(int64_t count) const {
  LEVIN_CHECK(settings.labels.empty() || static_cast<int64_t>(settings.labels.size()) == count,
              "observe.log.labels", "'{}' got {} labels for a metric of {} values, wanted {}", name,
              settings.labels.size(), count, count);
}

void LogEntry::take(double value, int64_t weight, int64_t now) {
  step = now;
  unseen = true;
  host = value;
  this->weight = weight;
  if (settings.on_epoch) epoch.add(value, static_cast<double>(weight));
}

void LogEntry::take(const at::Tensor& value, int64_t weight, int64_t now) {
  LEVIN_CHECK(!value.is_complex(), "observe.log.dtype",
              "'{}' got a complex value, wanted a real one; log its abs() or real()", name);
  step = now;
  unseen = true;
  host.reset();
  this->weight = weight;
  if (settings.on_epoch) epoch.add(value, static_cast<double>(weight));
  if (!settings.on_step) return;
  if (value.is_xla()) {
    device = value;
    return;
  }
  // A copy and not a reference: before it is read, the caller may change the tensor in place or
  // replay a CUDA graph over it.
  const OrdinaryTensors guard;
  if (!device.defined() || device.device() != value.device()) {
    device = at::empty({}, at::TensorOptions(at::kDouble).device(value.device()));
  }
  device.copy_(value.dim() == 0 ? value : value.reshape({}));
}

void LogEntry::take(std::shared_ptr<Metric> object, int64_t now) {
  LEVIN_CHECK(metric == nullptr || metric == object, "observe.log.kind",
              "'{}' was logged with another metric object before; use one metric per name", name);
  for (const State& state : unmerged) object->merge(state);
  unmerged.clear();
  metric = std::move(object);
  metric_logged = true;
  step = now;
  unseen = true;
}

void LogEntry::reset_epoch() {
  epoch.reset();
  unmerged.clear();
  if (metric != nullptr) metric->reset();
  metric_logged = false;
}

// The user's name is a value and not a key, so that its characters ('/', '.') cannot matter.
State LogEntry::state_dict() const {
  State state;
  state.set("name", name).set("is_metric", is_metric).set("reduce", settings.reduce);
  state.set("prog_bar", settings.prog_bar).set("logger", settings.logger);
  state.set("on_step", settings.on_step).set("on_epoch", settings.on_epoch);
  if (loader != kNoLoader) state.set("loader", loader);
  if (settings.sync_dist) state.set("sync_dist", true);
  if (settings.rank_zero_only) state.set("rank_zero_only", true);
  for (size_t i = 0; i < settings.labels.size(); ++i) {
    state.set("label_" + std::to_string(i), settings.labels[i]);
  }
  if (!is_metric) return state.set("epoch", epoch.state_dict());
  std::vector<State> parts = unmerged;
  if (metric_logged) parts.insert(parts.begin(), metric->state_dict());
  State all;
  for (size_t i = 0; i < parts.size(); ++i) all.set(std::to_string(i), std::move(parts[i]));
  return state.set("metric", std::move(all));
}

void LogEntry::merge(const State& other) {
  if (!is_metric) return epoch.merge(other.child("epoch"));
  const State& parts = other.child("metric");
  for (size_t i = 0; i < parts.values().size(); ++i) {
    const State& part = parts.child(std::to_string(i));
    if (metric == nullptr) {
      unmerged.push_back(part);
    } else {
      metric->merge(part);
      metric_logged = true;
    }
  }
}

}  // namespace levin::detail
