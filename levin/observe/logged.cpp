#include <fmt/ranges.h>

#include "levin/base/check.h"
#include "levin/observe/log_book_impl.h"
#include "levin/observe/logger.h"
#include "levin/observe/reduction.h"

namespace levin {
namespace {

// Collects the destinations of numbers. Numbers on a device are read together, at the end.
class Reading {
 public:
  void add(double value, double& into) { into = value; }
  void add(at::Tensor value, double& into) {
    tensors_.push_back(std::move(value));
    into_.push_back(&into);
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
using detail::LogEntry;

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
  if (observer_ && observer_(name, {}, options)) return;
  LogEntry& entry = book_->find(name, options, /*is_metric=*/false);
  entry.take(value, book_->weight(name, options), book_->step());
}

void LoggedValues::log(std::string_view name, std::shared_ptr<Metric> metric,
                       const LogOptions& options) {
  LEVIN_CHECK(metric != nullptr, "observe.log.kind",
              "the value logged as '{}' is a null pointer, wanted a metric", name);
  LEVIN_CHECK(metric->is_scalar(), "observe.log.shape",
              "'{}' got a metric of several values, wanted one of one number; set its average, or "
              "read them by compute() and log each",
              name);
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
    double& into = entry.read_step.emplace();
    if (entry.is_metric) {
      reading.add(entry.metric->compute(), into);
    } else if (entry.host) {
      reading.add(*entry.host, into);
    } else {
      reading.add(entry.device, into);
    }
  }
  reading.finish();
  Scalars scalars;
  for (const LogEntry* entry : shown) entry->show(*entry->read_step, "_step", target, scalars);
  return scalars;
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
    double& into = entry.read_epoch.emplace();
    if (entry.is_metric) {
      reading.add(entry.metric->compute(), into);
    } else if (const auto host = entry.epoch.host()) {
      reading.add(*host, into);
    } else {
      reading.add(entry.epoch.value(), into);
    }
  }
  reading.finish();
  Scalars scalars;
  for (const LogEntry* entry : shown) entry->show(*entry->read_epoch, "_epoch", target, scalars);
  return scalars;
}

Scalars LoggedValues::latest(LogTarget target) const {
  Scalars scalars;
  for (const LogEntry& entry : std::as_const(*book_).entries()) {
    if (!entry.shown_to(target)) continue;
    if (entry.read_step) entry.show(*entry.read_step, "_step", target, scalars);
    if (entry.read_epoch) entry.show(*entry.read_epoch, "_epoch", target, scalars);
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
    const LogOptions options{theirs.boolean("prog_bar"), theirs.boolean("logger"),
                             theirs.boolean("on_step"), theirs.boolean("on_epoch"),
                             theirs.text("reduce")};
    const int64_t loader = theirs.contains("loader") ? theirs.integer("loader") : kNoLoader;
    book_->find(theirs.text("name"), loader, options, theirs.boolean("is_metric")).merge(theirs);
  }
}

}  // namespace levin
