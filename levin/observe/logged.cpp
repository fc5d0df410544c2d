#include <fmt/ranges.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/observe/log_book_impl.h"
#include "levin/observe/logger.h"
#include "levin/observe/reduction.h"

namespace levin {
namespace {

using detail::LogEntry;

// Collects the destinations of numbers. Numbers on a device are read together, at the end.
class Reading {
 public:
  void add(double value, std::vector<double>& into) { into.assign(1, value); }
  void add(at::Tensor value, std::vector<double>& into) {
    into.resize(1);
    tensors_.push_back(std::move(value));
    into_.push_back(into.data());
  }
  void add(const LogEntry& entry, std::vector<double>& into) {
    at::Tensor value = entry.metric->compute();
    if (entry.metric->is_scalar()) return add(std::move(value), into);
    // Without samples the number of classes may be unknown: one NaN, which no class has.
    LEVIN_CHECK(value.dim() <= 1, "observe.log.shape",
                "'{}' is a metric whose value has the shape [{}], wanted one number or one per "
                "class; read it by compute(), and log a matrix as an image",
                entry.name, fmt::join(value.sizes(), ", "));
    into.resize(value.dim() == 0 ? 0 : static_cast<size_t>(value.size(0)));
    if (value.dim() == 0) return;
    entry.check_labels(value.size(0));
    for (size_t i = 0; i < into.size(); ++i) {
      tensors_.push_back(value.select(0, static_cast<int64_t>(i)));
      into_.push_back(&into[i]);
    }
  }
  void finish() {
    const std::vector<double> values = detail::read_scalars(tensors_);
    for (size_t i = 0; i < values.size(); ++i) *into_[i] = values[i];
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<double*> into_;
};

}  // namespace

using detail::kNoLoader;

LoggedValues::LoggedValues(bool default_on_step, bool default_on_epoch)
    : book_(std::make_unique<detail::LogBook>(default_on_step, default_on_epoch)) {}

LoggedValues::~LoggedValues() = default;

void LoggedValues::begin_step(int64_t batch_size) { book_->begin_step(batch_size); }
void LoggedValues::set_dataloader_index(std::optional<int64_t> index) {
  book_->set_dataloader_index(index);
}

void LoggedValues::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  LEVIN_CHECK(value.defined() && value.numel() == 1, "observe.log.shape",
              "'{}' got {}, wanted one element; log its mean() or sum()", name,
              value.defined() ? fmt::format("the shape [{}]", fmt::join(value.sizes(), ", "))
                              : "an undefined tensor");
  if (options.rank_zero_only && !is_rank_zero_) return;
  if (observer_ && observer_(name, value, options)) return;
  if (!value.is_xla()) return log_own(name, value, options);
  // The copy is one more result of the program that gives the value.
  const detail::OrdinaryTensors guard;
  log_own(name, value.detach().clone(), options);
}

void LoggedValues::log_own(std::string_view name, const at::Tensor& value,
                           const LogOptions& options) {
  LogEntry& entry = book_->find(name, options, /*is_metric=*/false);
  const int64_t weight = book_->weight(name, options);
  if (const auto host = detail::host_value(value)) {
    entry.take(*host, weight, book_->step());
  } else {
    entry.take(value, weight, book_->step());
  }
}

void LoggedValues::log(std::string_view name, double value, const LogOptions& options) {
  if (options.rank_zero_only && !is_rank_zero_) return;
  if (observer_ && observer_(name, {}, options)) return;
  LogEntry& entry = book_->find(name, options, /*is_metric=*/false);
  entry.take(value, book_->weight(name, options), book_->step());
}

void LoggedValues::log(std::string_view name, std::shared_ptr<Metric> metric,
                       const LogOptions& options) {
  LEVIN_CHECK(metric != nullptr, "observe.log.kind",
              "the value logged as '{}' is a null pointer, wanted a metric", name);
  LEVIN_CHECK(dynamic_cast<const metrics::ConfusionMatrix*>(metric.get()) == nullptr,
              "observe.log.shape",
              "'{}' got a confusion matrix, wanted a metric of one number or one per class; log "
              "picture_of_matrix(metric.compute()) as an image",
              name);
  LEVIN_CHECK(options.labels.empty() || !metric->is_scalar(), "observe.log.labels",
              "'{}' got labels with a metric of a single value; leave them out", name);
  if (options.rank_zero_only && !is_rank_zero_) return;
  if (observer_ && observer_(name, {}, options)) return;
  book_->find(name, options, /*is_metric=*/true).take(std::move(metric), book_->step());
}

template <class Choice>
Scalars LoggedValues::read_steps(LogTarget target, const Choice& is_chosen) {
  std::vector<const LogEntry*> shown;
  Reading reading;
  for (LogEntry& entry : book_->entries()) {
    if (!entry.settings.on_step || !is_chosen(entry) || !entry.shown_to(target)) continue;
    shown.push_back(&entry);
    std::vector<double>& into = entry.read_step;
    if (entry.is_metric) {
      reading.add(entry, into);
    } else if (entry.host) {
      reading.add(*entry.host, into);
    } else {
      reading.add(entry.device, into);
    }
  }
  reading.finish();
  Scalars scalars;
  for (const LogEntry* entry : shown) entry->show(entry->read_step, "_step", target, scalars);
  return scalars;
}

// The names are values and not keys, so that their characters cannot matter.
void LoggedValues::sync_step(const Gather& gather) {
  std::vector<LogEntry*> synced;
  Reading reading;
  bool any = false;
  for (LogEntry& entry : book_->entries()) {
    if (!entry.settings.sync_dist || !entry.settings.on_step) continue;
    any = true;
    if (entry.step != book_->step()) continue;
    synced.push_back(&entry);
    if (entry.host) {
      reading.add(*entry.host, entry.read_step);
    } else {
      reading.add(entry.device, entry.read_step);
    }
  }
  if (!any) return;
  reading.finish();
  State own;
  for (size_t i = 0; i < synced.size(); ++i) {
    State one;
    one.set("name", synced[i]->name).set("loader", synced[i]->loader);
    one.set("value", synced[i]->read_step[0]).set("counts", synced[i]->weight != 0);
    own.set(std::to_string(i), std::move(one));
  }
  std::map<std::pair<std::string, int64_t>, detail::Reduction> reduced;
  for (const State& rank : gather(own)) {
    for (const auto& [place, unused] : rank.values()) {
      const State& one = rank.child(place);
      const std::pair key(one.text("name"), one.integer("loader"));
      const auto mine = std::ranges::find_if(synced, [&](const LogEntry* entry) {
        return entry->name == key.first && entry->loader == key.second;
      });
      if (mine == synced.end()) continue;
      detail::Reduction& reduction =
          reduced.try_emplace(key, detail::Reduction((*mine)->epoch.kind())).first->second;
      reduction.add(one.number("value"), one.boolean("counts") ? 1 : 0);
    }
  }
  for (LogEntry* entry : synced) {
    const detail::Reduction& reduction = reduced.at({entry->name, entry->loader});
    // Where no rank's batch had a sample, each keeps its own value.
    if (!reduction.empty()) entry->host = reduction.host();
  }
}

Scalars LoggedValues::step_values(LogTarget target) {
  return read_steps(target, [&](const LogEntry& entry) { return entry.step == book_->step(); });
}

Scalars LoggedValues::take_step_values() {
  Scalars scalars =
      read_steps(LogTarget::kCallbacks, [](const LogEntry& entry) { return entry.unseen; });
  for (LogEntry& entry : book_->entries()) entry.unseen = false;
  return scalars;
}

Scalars LoggedValues::epoch_values(LogTarget target) {
  std::vector<const LogEntry*> shown;
  Reading reading;
  for (LogEntry& entry : book_->entries()) {
    const bool there = entry.is_metric ? entry.metric_logged : !entry.epoch.empty();
    if (!there || !entry.settings.on_epoch || !entry.shown_to(target)) continue;
    shown.push_back(&entry);
    std::vector<double>& into = entry.read_epoch;
    if (entry.is_metric) {
      reading.add(entry, into);
    } else if (const auto host = entry.epoch.host()) {
      reading.add(*host, into);
    } else {
      reading.add(entry.epoch.value(), into);
    }
  }
  reading.finish();
  Scalars scalars;
  for (const LogEntry* entry : shown) entry->show(entry->read_epoch, "_epoch", target, scalars);
  return scalars;
}

Scalars LoggedValues::latest(LogTarget target) const {
  Scalars scalars;
  for (const LogEntry& entry : std::as_const(*book_).entries()) {
    if (!entry.shown_to(target)) continue;
    entry.show(entry.read_step, "_step", target, scalars);
    entry.show(entry.read_epoch, "_epoch", target, scalars);
  }
  return scalars;
}

void LoggedValues::reset_epoch() {
  for (LogEntry& entry : book_->entries()) entry.reset_epoch();
}

void LoggedValues::mark() {
  for (LogEntry& entry : book_->entries()) entry.epoch.mark();
}

void LoggedValues::rewind() {
  for (LogEntry& entry : book_->entries()) entry.epoch.rewind();
}

State LoggedValues::state_dict() const {
  const auto& entries = std::as_const(*book_).entries();
  State state;
  state.set("size", static_cast<int64_t>(entries.size()));
  for (size_t i = 0; i < entries.size(); ++i) state.set(std::to_string(i), entries[i].state_dict());
  return state;
}

void LoggedValues::load_state_dict(const State& state) {
  reset_epoch();
  merge(state);
}

void LoggedValues::merge(const State& other) {
  for (int64_t i = 0; i < other.integer("size"); ++i) {
    const State& theirs = other.child(std::to_string(i));
    LogOptions options{.prog_bar = theirs.boolean("prog_bar"),
                       .logger = theirs.boolean("logger"),
                       .on_step = theirs.boolean("on_step"),
                       .on_epoch = theirs.boolean("on_epoch"),
                       .reduce = theirs.text("reduce"),
                       .sync_dist = theirs.contains("sync_dist"),
                       .rank_zero_only = theirs.contains("rank_zero_only")};
    for (std::string key = "label_0"; theirs.contains(key);
         key = "label_" + std::to_string(options.labels.size())) {
      options.labels.push_back(theirs.text(key));
    }
    const int64_t loader = theirs.contains("loader") ? theirs.integer("loader") : kNoLoader;
    book_->find(theirs.text("name"), loader, options, theirs.boolean("is_metric")).merge(theirs);
  }
}

}  // namespace levin
