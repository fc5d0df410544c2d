#include "levin/data/loading/combined_loader.h"

#include <algorithm>
#include <array>
#include <optional>

#include "levin/base/check.h"
#include "levin/data/loading/dispatched_loader.h"

namespace levin {
namespace detail {
namespace {

constexpr std::array<std::string_view, 4> kModes = {"min_size", "max_size_cycle", "max_size",
                                                    "sequential"};
/// Between the numbers of the epochs that a part reads within one epoch of a combined loader: each
/// cycle has a permutation of its own, whatever the number of cycles.
constexpr int64_t kCycleStride = int64_t{1} << 32;

int64_t epoch_of(int64_t epoch, int64_t cycles) { return epoch + cycles * kCycleStride; }

/// The parts have the samplers, and pad their own batches.
DataLoaderOptions options_of(const std::vector<CombinedPart>& parts) {
  DataLoaderOptions options = parts.front().loader->options();
  options.sampler = nullptr;
  options.shuffle = std::ranges::any_of(
      parts, [](const CombinedPart& part) { return part.loader->options().shuffle; });
  options.pad_last_batch = false;
  options.padding_values.clear();
  return options;
}

}  // namespace

CombinedLoader::CombinedLoader(std::vector<CombinedPart> parts, CombinedMode mode)
    : LoaderImpl(options_of(parts)), mode_(mode) {
  for (CombinedPart& part : parts) {
    parts_.push_back({.name = std::move(part.name), .loader = std::move(part.loader)});
  }
  epoch_ = parts_.front().loader->epoch();
  for (const Part& part : parts_) batches_ = std::max(batches_, part.loader->batches_done());
  start_ = batches_;
  mark();
}

// Lightning's lengths of each mode.
template <class Count>
std::optional<int64_t> CombinedLoader::count(const Count& batches_of) const {
  std::optional<int64_t> total;
  for (const Part& part : parts_) {
    const std::optional<int64_t> batches = batches_of(part);
    if (!batches) return std::nullopt;
    total = !total                               ? *batches
            : mode_ == CombinedMode::kMinSize    ? std::min(*total, *batches)
            : mode_ == CombinedMode::kSequential ? *total + *batches
                                                 : std::max(*total, *batches);
  }
  return total;
}

std::optional<int64_t> CombinedLoader::size() const {
  return count([](const Part& part) { return part.loader->size(); });
}

// A state of another number of ranks leaves other numbers of batches.
int64_t CombinedLoader::batches_done() const {
  const std::optional<int64_t> all = size();
  const std::optional<int64_t> left = count([](const Part& part) -> std::optional<int64_t> {
    const std::optional<int64_t> size = part.loader->size();
    if (part.has_ended || !size) return part.has_ended ? 0 : size;
    return std::max<int64_t>(*size - part.loader->batches_done(), 0);
  });
  return all && left ? *all - *left : batches_;
}

void CombinedLoader::set_slice(DataSlice slice, bool even) {
  for (const Part& part : parts_) part.loader->set_slice(slice, even);
}

void CombinedLoader::set_pin_memory(bool pin_memory) {
  for (const Part& part : parts_) part.loader->set_pin_memory(pin_memory);
}

void CombinedLoader::end_together(const std::function<bool(bool ended)>& any_ended) {
  for (const Part& part : parts_) part.loader->end_together(any_ended);
}

template <class Change>
std::shared_ptr<LoaderImpl> CombinedLoader::changed(const Change& change) const {
  std::vector<CombinedPart> parts;
  for (const Part& part : parts_) {
    parts.push_back({.name = part.name, .loader = change(*part.loader)});
  }
  auto loader = std::make_shared<CombinedLoader>(std::move(parts), mode_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    loader->parts_[i].cycles = parts_[i].cycles;
    loader->parts_[i].has_ended = parts_[i].has_ended;
  }
  loader->epoch_ = epoch_;
  loader->batches_ = loader->start_ = batches_;
  loader->turn_ = turn_;
  loader->mark();
  return loader;
}

std::shared_ptr<LoaderImpl> CombinedLoader::copy() const {
  return changed([](const LoaderImpl& part) { return part.copy(); });
}

std::shared_ptr<LoaderImpl> CombinedLoader::widened(int64_t times) const {
  return changed([times](const LoaderImpl& part) { return part.widened(times); });
}

std::shared_ptr<LoaderImpl> CombinedLoader::in_order() const {
  std::vector<CombinedPart> parts;
  for (const Part& part : parts_) parts.push_back({part.name, part.loader->in_order()});
  return std::make_shared<CombinedLoader>(std::move(parts), mode_);
}

std::shared_ptr<LoaderImpl> CombinedLoader::dispatched_parts(
    const comm::ProcessGroup& group) const {
  return changed([&group](const LoaderImpl& part) {
    return impl_of(dispatched(make_loader(part.copy()), group, /*even=*/true));
  });
}

bool CombinedLoader::is_over(Part& part) { return part.has_ended || part.loader->at_end(); }

// Every rank asks the same parts in the same order: a stream's end is agreed on by all.
bool CombinedLoader::at_end() {
  if (mode_ == CombinedMode::kMinSize) {
    return std::ranges::any_of(parts_, [this](Part& part) { return is_over(part); });
  }
  return std::ranges::all_of(parts_, [this](Part& part) { return is_over(part); });
}

void CombinedLoader::take(Part& part, Batch& batch) {
  Batch own;
  if (!part.loader->next_padded(own)) {
    LEVIN_FAIL("data.combined.empty",
               "loader '{}' has no batch, so it cannot begin again; give it data, or set mode = "
               "\"max_size\"",
               part.name);
  }
  if (batch.empty()) added_ = part.loader->added();
  for (const auto& [name, tensor] : own) batch.set(part.name + "/" + name, tensor);
}

// rewind() needs the place that the part had at mark(), which is in the epoch that it leaves now.
void CombinedLoader::begin_again(size_t index) {
  Part& part = parts_[index];
  if (!marked_.states[index]) {
    const State here = part.loader->state_dict();
    if (part.loader->rewind()) {
      marked_.states[index] = part.loader->state_dict();
      part.loader->load_state_dict(here);
    }
  }
  part.has_ended = true;
  part.loader->set_epoch(epoch_of(epoch_, ++part.cycles));
}

bool CombinedLoader::next(Batch& batch) {
  batch = {};
  if (at_end()) {
    begin_epoch(epoch_ + 1);
    return false;
  }
  added_ = 0;
  Batch combined;
  if (mode_ == CombinedMode::kSequential) {
    while (is_over(parts_[turn_])) parts_[turn_++].has_ended = true;
    take(parts_[turn_], combined);
  } else {
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      if (part.loader->at_end()) {
        if (mode_ == CombinedMode::kMaxSizeCycle) {
          begin_again(i);
        } else {
          part.has_ended = true;
        }
      }
      if (mode_ == CombinedMode::kMaxSize && part.has_ended) continue;
      take(part, combined);
    }
  }
  batch = std::move(combined);
  ++batches_;
  return true;
}

int64_t CombinedLoader::padding() const {
  const size_t first = mode_ == CombinedMode::kSequential ? std::min(turn_, parts_.size() - 1) : 0;
  return parts_[first].loader->padding();
}

void CombinedLoader::begin_epoch(int64_t epoch) {
  for (Part& part : parts_) {
    part.cycles = 0;
    part.has_ended = false;
    part.loader->set_epoch(epoch);
  }
  epoch_ = epoch;
  batches_ = start_ = 0;
  turn_ = 0;
  mark();
}

void CombinedLoader::set_epoch(int64_t epoch) {
  LEVIN_CHECK(epoch >= 0 && epoch < kCycleStride, "data.loader.epoch",
              "got epoch {}, wanted 0 to {}", epoch, kCycleStride - 1);
  if (epoch != epoch_ || batches_ > 0) begin_epoch(epoch);
}

void CombinedLoader::mark() {
  marked_.batches = batches_;
  marked_.turn = turn_;
  marked_.ends.resize(parts_.size());
  marked_.states.assign(parts_.size(), std::nullopt);
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].loader->mark();
    marked_.ends[i] = {parts_[i].cycles, parts_[i].has_ended};
  }
}

bool CombinedLoader::rewind() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (marked_.states[i]) {
      part.loader->load_state_dict(*marked_.states[i]);
      part.loader->mark();
    } else if (!part.loader->rewind()) {
      return false;
    }
    std::tie(part.cycles, part.has_ended) = marked_.ends[i];
  }
  marked_.states.assign(parts_.size(), std::nullopt);
  batches_ = start_ = marked_.batches;
  turn_ = marked_.turn;
  return true;
}

State CombinedLoader::state_dict() const {
  State state, parts;
  for (const Part& part : parts_) {
    State own;
    own.set("loader", part.loader->state_dict());
    own.set("cycles", part.cycles).set("has_ended", part.has_ended);
    const State& of_loader = own.child("loader");
    // It tells a checkpoint that each rank has a state of its own.
    if (of_loader.contains("rank")) state.set("rank", of_loader.integer("rank"));
    if (!state.contains("seed") && of_loader.contains("seed")) {
      state.set("seed", of_loader.integer("seed"));
    }
    parts.set(part.name, std::move(own));
  }
  state.set("mode", std::string(kModes[static_cast<size_t>(mode_)]));
  state.set("epoch", epoch_).set("batches", batches_).set("turn", static_cast<int64_t>(turn_));
  return std::move(state.set("parts", std::move(parts)));
}

void CombinedLoader::load_state_dict(const State& state) {
  const bool is_combined = state.contains("parts") && state.contains("mode");
  LEVIN_CHECK(is_combined && state.text("mode") == kModes[static_cast<size_t>(mode_)],
              "data.loader.state",
              "the state is of {}, but this is a combined loader of mode \"{}\"; load it with the "
              "loader that it was saved with",
              is_combined ? "mode \"" + state.text("mode") + "\"" : "another kind of loader",
              kModes[static_cast<size_t>(mode_)]);
  const State& saved = state.child("parts");
  std::string names;
  for (const auto& [name, value] : saved.values()) names += (names.empty() ? "" : ", ") + name;
  const bool has_all =
      std::ssize(saved.values()) == std::ssize(parts_) &&
      std::ranges::all_of(parts_, [&](const Part& part) { return saved.contains(part.name); });
  LEVIN_CHECK(has_all, "data.loader.state",
              "the state is of the loaders [{}], but {} loaders with other names are combined here",
              names, parts_.size());
  const int64_t epoch = state.integer("epoch");
  const int64_t batches = state.integer("batches");
  const int64_t turn = state.integer("turn");
  LEVIN_CHECK(
      epoch >= 0 && epoch < kCycleStride && batches >= 0 && turn >= 0 && turn < std::ssize(parts_),
      "data.loader.state",
      "got epoch {}, {} batches and loader {} of {}, wanted a position "
      "within an epoch",
      epoch, batches, turn, parts_.size());
  // One seed for all of them (--data-seed) replaces that of each.
  std::optional<int64_t> seed;
  for (const Part& part : parts_) {
    const State& own = saved.child(part.name).child("loader");
    if (!state.contains("seed") || !own.contains("seed")) continue;
    if (own.integer("seed") != state.integer("seed")) seed = state.integer("seed");
    break;
  }
  for (Part& part : parts_) {
    const State& own = saved.child(part.name);
    State place = own.child("loader");
    if (seed && place.contains("seed")) place.set("seed", *seed);
    part.loader->load_state_dict(place);
    part.cycles = own.integer("cycles");
    part.has_ended = own.boolean("has_ended");
  }
  epoch_ = epoch;
  batches_ = start_ = batches;
  turn_ = static_cast<size_t>(turn);
  mark();
}

State merged_parts(const std::vector<State>& ranks) {
  State merged = ranks.front();
  State parts = merged.child("parts");
  for (const auto& [name, value] : ranks.front().child("parts").values()) {
    std::vector<State> places;
    for (const State& rank : ranks) {
      // With dispatched batches rank 0 alone has a place in the data.
      if (rank.contains("parts") && rank.child("parts").contains(name)) {
        places.push_back(rank.child("parts").child(name).child("loader"));
      }
    }
    State part = ranks.front().child("parts").child(name);
    part.set("loader", DataLoader::merged_state(places));
    parts.set(name, std::move(part));
  }
  merged.erase("rank");
  return std::move(merged.set("parts", std::move(parts)));
}

}  // namespace detail

namespace data {

DataLoader combined(const std::vector<std::pair<std::string, DataLoader>>& loaders,
                    const CombinedOptions& options) {
  const auto mode = std::ranges::find(detail::kModes, options.mode);
  LEVIN_CHECK(mode != detail::kModes.end(), "data.combined.options",
              "got mode '{}', wanted min_size, max_size_cycle, max_size or sequential",
              options.mode);
  LEVIN_CHECK(!loaders.empty(), "data.combined.options", "got no loader, wanted at least one");
  std::vector<detail::CombinedPart> parts;
  for (const auto& [name, loader] : loaders) {
    LEVIN_CHECK(!name.empty() && name.find('/') == std::string::npos, "data.combined.options",
                "got a loader of the name '{}', wanted a name without a slash", name);
    for (const detail::CombinedPart& other : parts) {
      LEVIN_CHECK(other.name != name, "data.combined.options",
                  "got two loaders of the name '{}'; give each another name", name);
      const auto& sampler = loader.options().sampler;
      LEVIN_CHECK(sampler == nullptr || sampler != other.loader->options().sampler,
                  "data.combined.options",
                  "loaders '{}' and '{}' share one sampler, but a sampler keeps only one position; "
                  "give each its own",
                  other.name, name);
    }
    parts.push_back({.name = name, .loader = impl_of(loader)->copy()});
  }
  return make_loader(std::make_shared<detail::CombinedLoader>(
      std::move(parts), static_cast<detail::CombinedMode>(mode - detail::kModes.begin())));
}

}  // namespace data
}  // namespace levin
