#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "levin/graph/compile/difference.h"
#include "levin/graph/compile/recordings_impl.h"
#include "levin/graph/graph.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

/// Beyond so many they are learned anew.
constexpr size_t kMostPaths = 1 << 16;

bool is_of(const ValueType& type, const at::Tensor& tensor) {
  if (!tensor.defined()) return type.kind == ValueKind::kUndefined;
  return type.dtype == tensor.scalar_type() && type.sizes == tensor.sizes() &&
         type.strides == tensor.strides() && type.device == tensor.device();
}

/// The flags that decide, beside the type, which operators run.
int flags_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  return (tensor.requires_grad() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) | (tensor.is_neg() ? 4 : 0);
}

bool is_same_read(const Node* left, const Node* right) {
  return left->target() == right->target() && *left->host_read() == *right->host_read();
}

std::string text_of_flags(int flags) {
  return fmt::format("requires_grad {}, conj {}, neg {}", (flags & 1) != 0, (flags & 2) != 0,
                     (flags & 4) != 0);
}

}  // namespace

std::string ExactNumber::text() const {
  return is_whole_ ? fmt::format("{}", static_cast<int64_t>(bits_))
                   : fmt::format("{}", std::bit_cast<double>(bits_));
}

Recordings::Recordings(const Conditions& conditions) {
  for (const at::Tensor& input : conditions.inputs) {
    inputs_.push_back(ValueType::of(input));
    flags_.push_back(flags_of(input));
  }
  for (const std::string_view name : conditions.names) names_.emplace_back(name);
  for (const Guard& guard : conditions.guards) {
    guards_.push_back(guard.value);
    guard_names_.push_back(guard.of.empty() ? std::string(guard.what)
                                            : fmt::format("{} of {}", guard.what, guard.of));
  }
}

bool Recordings::holds_for(const Conditions& conditions) const {
  return std::ranges::equal(guards_, conditions.guards, {}, {}, &Guard::value) &&
         std::ranges::equal(inputs_, conditions.inputs, is_of) &&
         std::ranges::equal(flags_, conditions.inputs, {}, {}, flags_of) &&
         std::ranges::equal(names_, conditions.names);
}

std::string Recordings::difference_to(const Conditions& conditions) const {
  for (size_t i = 0; i < std::min(inputs_.size(), conditions.inputs.size()); ++i) {
    const at::Tensor& input = conditions.inputs[i];
    if (names_[i] != conditions.names[i]) {
      return fmt::format("input {} is {}, was {}", i, conditions.names[i], names_[i]);
    }
    if (!is_of(inputs_[i], input)) {
      return fmt::format("{} is {}, was {}", names_[i], text_of(ValueType::of(input)),
                         text_of(inputs_[i]));
    }
    if (flags_[i] != flags_of(input)) {
      return fmt::format("{} has {}, had {}", names_[i], text_of_flags(flags_of(input)),
                         text_of_flags(flags_[i]));
    }
  }
  if (inputs_.size() != conditions.inputs.size()) {
    return fmt::format("{} inputs, were {}", conditions.inputs.size(), inputs_.size());
  }
  for (size_t i = 0; i < std::min(guards_.size(), conditions.guards.size()); ++i) {
    const ExactNumber& now = conditions.guards[i].value;
    if (guards_[i] == now) continue;
    return fmt::format("{} is {}, was {}", guard_names_[i], now.text(), guards_[i].text());
  }
  return fmt::format("{} conditions, were {}", conditions.guards.size(), guards_.size());
}

uint64_t Recordings::hash_of(const Conditions& conditions) {
  uint64_t hash = 0;
  for (const Guard& argument : conditions.arguments) {
    hash = (hash ^ argument.value.bits()) * 0x9E3779B97F4A7C15U;
  }
  return hash;
}

bool Recordings::is_now(const Path& path, const Conditions& conditions) {
  return std::ranges::equal(path.arguments, conditions.arguments, {}, {}, &Guard::value) &&
         std::ranges::all_of(path.answers, [](const HostPart::Dependence& answer) {
           return answer.number() == answer.value;
         });
}

template <class Predicate>
Variant* Recordings::find_where(const Conditions& conditions, const Predicate& predicate) {
  const auto bucket = paths_.find(hash_of(conditions));
  if (bucket == paths_.end()) return nullptr;
  std::vector<Path>& paths = bucket->second;
  const auto found = std::ranges::find_if(paths, [&](const Path& path) {
    return path.is_certain && is_now(path, conditions) && predicate(*path.variant);
  });
  if (found == paths.end()) return nullptr;
  if (found != paths.begin()) std::iter_swap(found, paths.begin());
  return paths.front().variant;
}

Variant* Recordings::find(const Conditions& conditions) {
  return find_where(conditions, [](const Variant&) { return true; });
}

Variant* Recordings::find(const Conditions& conditions, const Variant& failed,
                          const OtherRead& read) {
  const auto was = failed.recorded.host_reads();
  return find_where(conditions, [&](const Variant& other) {
    const auto reads = other.recorded.host_reads();
    if (reads.size() <= read.number || !(*reads[read.number]->host_read() == read.read)) {
      return false;
    }
    return std::equal(was.begin(), was.begin() + static_cast<std::ptrdiff_t>(read.number),
                      reads.begin(), is_same_read);
  });
}

/// The one with these arguments, the answers that the recording got, and what the host read.
Recordings::Path* Recordings::find_path(const Conditions& conditions, const HostPart& recording,
                                        const Graph& graph) {
  const auto reads = graph.host_reads();
  const auto same_answer = [](const auto& left, const auto& right) {
    return left.what == right.what && left.value == right.value;
  };
  for (Path& path : paths_[hash_of(conditions)]) {
    if (std::ranges::equal(path.arguments, conditions.arguments, {}, {}, &Guard::value) &&
        std::ranges::equal(path.answers, recording.dependences_, same_answer) &&
        std::ranges::equal(path.variant->recorded.host_reads(), reads, is_same_read)) {
      return &path;
    }
  }
  return nullptr;
}

Variant& Recordings::add(const Conditions& conditions, Graph&& graph, const HostPart& recording,
                         std::string& difference, const Variant* equal) {
  Variant* variant = nullptr;
  for (const auto& known : std::views::reverse(variants_)) {
    const std::optional<Difference> other =
        known.get() == equal ? std::nullopt : first_difference(known->recorded, graph);
    const std::string differs = other ? other->text : known->recording.difference_to(recording);
    if (differs.empty()) variant = known.get();
    if (variant != nullptr) break;
    if (difference.empty()) difference = differs;
  }
  const bool is_new = variant == nullptr;
  if (is_new) {
    variants_.push_back(std::make_unique<Variant>(std::move(graph)));
    variant = variants_.back().get();
  } else {
    difference.clear();
  }
  Path* path = find_path(conditions, recording, variant->recorded);
  const bool is_surprise = path != nullptr && path->variant != variant;
  if (is_surprise) ++num_surprises;
  const bool has_answers =
      !recording.dependences_.empty() || !variant->recorded.host_reads().empty();
  num_new_answers = path == nullptr && has_answers ? num_new_answers + 1 : 0;
  // Seen before is enough, but where the function did something else in between.
  is_certain_ = !is_new && !is_surprise;
  if (path == nullptr) {
    if (++num_paths_ > kMostPaths) {
      paths_.clear();
      num_paths_ = 1;
    }
    Path added{.answers = recording.dependences_};
    for (HostPart::Dependence& answer : added.answers) answer.frames = {};
    for (const Guard& argument : conditions.arguments) added.arguments.push_back(argument.value);
    path = &paths_[hash_of(conditions)].emplace_back(std::move(added));
  }
  path->variant = variant;
  path->is_certain = is_certain_;
  return *variant;
}

void Recordings::forget_paths_to(const Variant& variant) {
  for (auto& [hash, paths] : paths_) {
    num_paths_ -= std::erase_if(paths, [&](const Path& path) { return path.variant == &variant; });
  }
}

void Recordings::drop(const Variant& variant) {
  forget_paths_to(variant);
  std::erase_if(variants_, [&](const auto& known) { return known.get() == &variant; });
}

void Recordings::clear() {
  paths_.clear();
  variants_.clear();
  num_paths_ = 0;
}

}  // namespace levin::graph
