// Collectives that a recording starts and waits for, and memory whose contents are nobody's.
#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

bool have_bytes_in_common(const Geometry& left, const Geometry& right) {
  const auto [begin, end] = left.extent();
  const auto [from, to] = right.extent();
  return begin < to && from < end;
}

/// Returns whether the wait ends this start, which sends the first tensor that the wait names.
bool ends_send(const Recorder::Call& wait, const Node& start) {
  const c10::IValue* number = constant_of(start.arguments().back());
  const c10::IValue* wanted = constant_of(wait.arguments.back());
  return number->toInt() == wanted->toInt();
}

/// Returns the tensors of a collective that it only sends.
Values sent_by(const Node& start) {
  Values sent;
  const OperatorInfo& info = info_of(start);
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    if (std::ranges::count(info.written, i) > 0) continue;
    for_each_value(start.arguments()[i], [&](Value& value) { sent.push_back(&value); });
  }
  return sent;
}

}  // namespace

void Recorder::Impl::forget_contents(const at::Tensor& tensor) {
  const Geometry geometry = Geometry::of(tensor);
  if (geometry.numel() == 0) return;
  const std::vector<Region*> regions = aliases.overlapping(geometry);
  if (regions.empty()) {
    Region& region = *aliases.add_base(tensor, append_unwritten(geometry)).region;
    region.is_unwritten = region.is_released = true;
    return;
  }
  Region& region = *regions.front();
  const auto [begin, end] = geometry.extent();
  const auto [from, to] = region.base->geometry.extent();
  LEVIN_CHECK(regions.size() == 1 && begin <= from && to <= end && !region.is_argument,
              "graph.record.alias",
              "got release of a tensor {} that is {}; release all of a buffer at once",
              c10::str(tensor.sizes()),
              region.is_argument ? "an input of the step" : "a part of memory that is in use");
  LEVIN_CHECK(region.under_way.empty(), "graph.record.under_way",
              "got release of a tensor {} while {} is under way; wait for it first",
              c10::str(tensor.sizes()), region.under_way.front().start->target());
  ++region.version;
  region.base->set(append_unwritten(region.base->geometry));
  region.is_unwritten = region.is_released = true;
  region.input = nullptr;
  region.contents.reset();
}

/// The value that a wait takes, if it is for this alias; otherwise checks that the operator leaves
/// alone what is under way there.
Value* Recorder::Impl::read_under_way(const Call& call, Alias& alias, bool is_written) {
  const std::vector<UnderWay>& under_way = alias.region->under_way;
  if (call.info->is_wait) {
    if (!is_written) return nullptr;
    const auto started = std::ranges::find_if(under_way, [&](const UnderWay& one) {
      return one.alias == &alias && one.value != nullptr;
    });
    LEVIN_CHECK(started != under_way.end(), "graph.record.under_way",
                "got a wait for a tensor {} of a collective that was started before the recording; "
                "wait before the step",
                c10::str(alias.geometry.sizes));
    return started->value;
  }
  if (call.info->returns_view && !is_written) return nullptr;
  for (const UnderWay& one : under_way) {
    const bool is_touched = (one.value != nullptr || is_written) &&
                            have_bytes_in_common(one.alias->geometry, alias.geometry);
    LEVIN_CHECK(!is_touched, "graph.record.under_way",
                "{} {} a tensor {} that {} still {}; wait for the collective first",
                call.info->name, is_written ? "writes to" : "reads", c10::str(alias.geometry.sizes),
                one.start->target(), one.value != nullptr ? "writes to" : "sends");
  }
  return nullptr;
}

/// The tensors keep their values until the wait: nobody may look at what comes in between.
void Recorder::Impl::add_start(const Call& call, const Node& node) {
  size_t i = 0;
  for (const Call::Read& read : call.reads) {
    Region& region = *read.alias->region;
    Value* const value = read.is_written ? node.outputs_[i++] : nullptr;
    region.under_way.push_back({read.alias, value, &node});
    if (read.is_written) region.contents.reset();
    regions_under_way.push_back(&region);
  }
}

/// The wait also takes what the collective sends, so that nobody writes there before its end.
void Recorder::Impl::end_wait(Call& call) {
  const Node* start = nullptr;
  for (const Call::Read& read : call.reads) {
    for (const UnderWay& one : read.alias->region->under_way) {
      const bool is_it = read.is_written ? one.value != nullptr
                                         : one.value == nullptr && ends_send(call, *one.start);
      if (start == nullptr && one.alias == read.alias && is_it) start = one.start;
    }
  }
  LEVIN_CHECK(start != nullptr || call.reads.empty(), "graph.record.under_way",
              "got a wait for a collective that was started before the recording; wait before the "
              "step");
  if (start == nullptr) return;
  call.arguments[2] = sent_by(*start);
  for (Region* region : regions_under_way) {
    std::erase_if(region->under_way, [&](const UnderWay& one) { return one.start == start; });
  }
  std::erase_if(regions_under_way, [](const Region* region) { return region->under_way.empty(); });
}

/// The caller waits for all-reduces that are under way in the end: an update that is another function
/// than backward, as under ddp. Other collectives send memory that would not last.
void Recorder::Impl::leave_under_way() {
  for (Region* region : regions_under_way) {
    for (const UnderWay& one : std::exchange(region->under_way, {})) {
      LEVIN_CHECK(one.start->target() == "levin::all_reduce_start_", "graph.record.under_way",
                  "the step ends while {} is under way; wait for it within the step",
                  one.start->target());
      write(*one.alias, *one.value);
    }
  }
  regions_under_way.clear();
}

}  // namespace levin::graph
