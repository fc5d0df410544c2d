#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/graph/interpret/in_place_impl.h"
#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// Operators that give a whole with another part, and the view that is that part.
constexpr std::array<std::pair<std::string_view, std::pair<const char*, const char*>>, 4>
    kScatters = {{{"aten::slice_scatter", {"aten::slice", "Tensor"}},
                  {"aten::select_scatter", {"aten::select", "int"}},
                  {"aten::diagonal_scatter", {"aten::diagonal", ""}},
                  {"aten::as_strided_scatter", {"aten::as_strided", ""}}}};

std::optional<c10::OperatorHandle> view_of_scatter(const Node& node) {
  for (const auto& [name, view] : kScatters) {
    if (node.target() == name) {
      return c10::Dispatcher::singleton().findSchemaOrThrow(view.first, view.second);
    }
  }
  return std::nullopt;
}

/// Elements from the start of the memory, as [begin, end).
using ElementRun = std::pair<int64_t, int64_t>;

/// By the first element of a run: the write whose result lies there; 0 for what was there before.
using Contents = std::map<int64_t, size_t>;
using SharedContents = std::shared_ptr<const Contents>;

size_t contents_at(const Contents& contents, int64_t element) {
  return std::prev(contents.upper_bound(element))->second;
}

void put(Contents& contents, ElementRun run, size_t write) {
  if (run.first >= run.second) return;
  const size_t behind = contents_at(contents, run.second);
  contents.erase(contents.lower_bound(run.first), contents.upper_bound(run.second));
  contents[run.first] = write;
  contents[run.second] = behind;
}

/// Puts what another one has in the run.
void put(Contents& contents, ElementRun run, const Contents& other) {
  if (run.first >= run.second) return;
  Contents part = {{run.first, contents_at(other, run.first)}};
  part.insert(other.lower_bound(run.first), other.lower_bound(run.second));
  put(contents, run, size_t{0});
  for (const auto& [begin, write] : part) contents[begin] = write;
}

bool are_same(const Contents& left, const Contents& right, ElementRun run) {
  if (run.first >= run.second) return true;
  if (contents_at(left, run.first) != contents_at(right, run.first)) return false;
  const auto changes_alike = [&](const Contents& one, const Contents& other) {
    return std::all_of(
        one.lower_bound(run.first), one.lower_bound(run.second),
        [&](const auto& entry) { return contents_at(other, entry.first) == entry.second; });
  };
  return changes_alike(left, right) && changes_alike(right, left);
}

/// From its first element to its last.
ElementRun extent_of(const at::Tensor& tensor) {
  const int64_t begin = tensor.storage_offset();
  if (tensor.numel() == 0) return {begin, begin};
  int64_t last = begin;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {begin, last + 1};
}

/// The runs of elements that lie one behind the other; none if they are too many to follow, or if
/// elements share memory.
std::optional<std::vector<ElementRun>> runs_of(const at::Tensor& tensor) {
  constexpr size_t kMostRuns = 256;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 0) return std::vector<ElementRun>();
    if (tensor.size(dim) > 1) dims.emplace_back(tensor.stride(dim), tensor.size(dim));
  }
  std::ranges::sort(dims);
  int64_t length = 1;
  size_t inner = 0;
  while (inner < dims.size() && dims[inner].first == length) length *= dims[inner++].second;
  std::vector<int64_t> begins = {tensor.storage_offset()};
  int64_t reach = length;
  for (; inner < dims.size(); ++inner) {
    const auto [stride, size] = dims[inner];
    if (stride < reach || begins.size() * static_cast<size_t>(size) > kMostRuns)
      return std::nullopt;
    std::vector<int64_t> more;
    for (int64_t i = 0; i < size; ++i) {
      for (const int64_t begin : begins) more.push_back(begin + i * stride);
    }
    begins = std::move(more);
    reach += (size - 1) * stride;
  }
  std::vector<ElementRun> runs;
  for (const int64_t begin : begins) runs.emplace_back(begin, begin + length);
  return runs;
}

bool lies_the_same(const at::Tensor& left, const at::Tensor& right) {
  if (left.storage_offset() != right.storage_offset() || left.sizes() != right.sizes() ||
      left.scalar_type() != right.scalar_type()) {
    return false;
  }
  for (int64_t dim = 0; dim < left.dim(); ++dim) {
    if (left.size(dim) > 1 && left.stride(dim) != right.stride(dim)) return false;
  }
  return true;
}

/// Values that lie in one memory if all writes are done in place.
struct Family {
  const Value* whole = nullptr;
  bool has_scatters = false;
  bool is_possible = true;
  Contents memory;  ///< as it is when the nodes so far have run in place
  std::vector<const Node*> scatters;
  std::vector<const Value*> written;
};

/// A value of a family, as it lies there and with the contents that it has in a run that copies.
struct Member {
  Family* family = nullptr;
  at::Tensor tensor;  ///< on the device meta
  SharedContents contents;
};

class Finder {
 public:
  Finder(const Graph& graph, const std::function<bool(const Value&)>& may_write)
      : graph_(graph), may_write_(may_write) {}

  InPlaceWrites run() {
    find_families();
    if (families_.empty()) return {};
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const Node& node : graph_.nodes()) {
      if (node.opcode() == Opcode::kCallFunction) follow(node);
      begin(node);
    }
    for (const Value* value : graph_.outputs()) {
      if (value != nullptr) read(*value);
    }
    for (const Update& update : graph_.updates()) {
      if (update.value != nullptr) read(*update.value);
    }
    InPlaceWrites found;
    for (const auto& [whole, family] : families_) {
      if (!family.is_possible) continue;
      found.wholes.insert(whole);
      found.scatters.insert(family.scatters.begin(), family.scatters.end());
      found.written.insert(family.written.begin(), family.written.end());
    }
    return found;
  }

 private:
  /// Finds the families with a scatter whose full tensor may be written.
  void find_families() {
    std::unordered_map<const Value*, const Value*> wholes;
    const auto whole_of = [&](const Value* value) {
      const auto known = wholes.find(value);
      return known == wholes.end() ? value : known->second;
    };
    for (const Node& node : graph_.nodes()) {
      if (node.opcode() != Opcode::kCallFunction) continue;
      const bool is_scatter = view_of_scatter(node).has_value();
      if (is_scatter || (info_of(node).makes_view() && !node.inputs().empty())) {
        const Value* whole = whole_of(node.input(0));
        for (const Value* output : node.outputs()) wholes[output] = whole;
        if (is_scatter && may_write_(*whole)) families_[whole].whole = whole;
      }
      size_t number = first_written(node);
      for_each_written(
          node, [&](const Value& value) { wholes[&node.output(number++)] = whole_of(&value); });
    }
  }

  static size_t first_written(const Node& node) {
    size_t count = 0;
    for (const size_t index : info_of(node).written) count += num_values(node.arguments()[index]);
    return node.outputs().size() - count - (node.is_random() ? 1 : 0);
  }

  template <class Visit>
  static void for_each_written(const Node& node, const Visit& visit) {
    for (const size_t index : info_of(node).written) {
      for_each_value(node.arguments()[index], visit);
    }
  }

  /// Wholes that the node gives.
  void begin(const Node& node) {
    for (const Value* value : node.outputs()) {
      const auto found = families_.find(value);
      if (found == families_.end() || members_.contains(value)) continue;
      const ValueType& type = value->type();
      if (type.kind != ValueKind::kTensor || type.dtype == at::ScalarType::Undefined) {
        found->second.is_possible = false;
        continue;
      }
      found->second.memory = {{0, 0}};
      members_[value] = {&found->second,
                         at::empty_strided(type.sizes, type.strides,
                                           at::TensorOptions(type.dtype).device(at::kMeta)),
                         std::make_shared<const Contents>(found->second.memory)};
    }
  }

  Member* member(const Value& value) {
    const auto found = members_.find(&value);
    return found != members_.end() && found->second.family->is_possible ? &found->second : nullptr;
  }

  /// The value is read here: it must be what lies in the memory.
  void read(const Value& value) {
    Member* const one = member(value);
    if (one == nullptr) return;
    if (!are_same(*one->contents, one->family->memory, extent_of(one->tensor))) {
      one->family->is_possible = false;
    }
  }

  void follow(const Node& node) {
    const Values inputs = node.inputs();
    const bool is_of_family = std::ranges::any_of(
        inputs, [&](const Value* value) { return value != nullptr && member(*value) != nullptr; });
    if (!is_of_family) return;
    if (view_of_scatter(node)) return follow_scatter(node);
    if (info_of(node).makes_view()) return follow_view(node, *inputs.front());
    const OperatorInfo& info = info_of(node);
    for (size_t i = 0; i < info.num_parameters(); ++i) {
      const bool is_written = std::ranges::count(info.written, i) > 0;
      if (is_written && info.overwrites) continue;
      for_each_value(node.arguments()[i], [&](const Value& value) { read(value); });
    }
    check_apart(node);
    size_t number = first_written(node);
    for_each_written(node, [&](const Value& value) { write(value, node.output(number++)); });
  }

  /// An operator that writes one of its tensors reads no other one there.
  void check_apart(const Node& node) {
    for_each_written(node, [&](const Value& written) {
      Member* const one = member(written);
      if (one == nullptr) return;
      const ElementRun here = extent_of(one->tensor);
      for (const Value* input : node.inputs()) {
        if (input == nullptr || input == &written) continue;
        const Member* const other = member(*input);
        if (other == nullptr || other->family != one->family) continue;
        const ElementRun there = extent_of(other->tensor);
        if (here.first < there.second && there.first < here.second) {
          one->family->is_possible = false;
          return;
        }
      }
    });
  }

  void write(const Value& value, const Value& result) {
    Member* const one = member(value);
    if (one == nullptr) return;
    Family& family = *one->family;
    const auto runs = runs_of(one->tensor);
    const ValueType& type = result.type();
    if (!runs || type.kind != ValueKind::kTensor || type.sizes != one->tensor.sizes()) {
      family.is_possible = false;
      return;
    }
    auto contents = std::make_shared<Contents>(*one->contents);
    ++num_writes_;
    for (const ElementRun run : *runs) {
      put(family.memory, run, num_writes_);
      put(*contents, run, num_writes_);
    }
    family.written.push_back(&value);
    const at::Tensor tensor = one->tensor;
    members_[&result] = {&family, tensor, std::move(contents)};
  }

  void follow_view(const Node& node, const Value& whole) {
    if (member(whole) == nullptr) return;
    const Member one = members_.at(&whole);
    torch::jit::Stack stack = stack_of(node, [&](size_t, const Value&) { return one.tensor; });
    node.op().callBoxed(&stack);
    std::vector<at::Tensor> views;
    append_results(info_of(node), stack, views);
    for (size_t i = 0; i < views.size() && i < node.outputs().size(); ++i) {
      // Offsets count elements of one type.
      if (views[i].scalar_type() != one.tensor.scalar_type()) one.family->is_possible = false;
      members_[&node.output(i)] = {one.family, views[i], one.contents};
    }
  }

  void follow_scatter(const Node& node) {
    const Value& whole = *node.input(0);
    const Value& part = *node.input(1);
    Member* const one = member(whole);
    if (one == nullptr) return read(part);
    Family& family = *one->family;
    const Member* const source = member(part);
    if (source == nullptr || source->family != &family) {
      family.is_possible = false;
      return read(part);
    }
    torch::jit::Stack stack = stack_of(node, [&](size_t argument, const Value&) {
      return argument == 0 ? one->tensor : source->tensor;
    });
    stack.erase(stack.begin() + 1);
    view_of_scatter(node)->callBoxed(&stack);
    const auto runs = runs_of(source->tensor);
    if (!runs || !lies_the_same(stack.front().toTensor(), source->tensor)) {
      family.is_possible = false;
      return;
    }
    auto contents = std::make_shared<Contents>(*one->contents);
    for (const ElementRun run : *runs) put(*contents, run, *source->contents);
    family.scatters.push_back(&node);
    const at::Tensor tensor = one->tensor;
    members_[&node.output()] = {&family, tensor, std::move(contents)};
  }

  const Graph& graph_;
  const std::function<bool(const Value&)>& may_write_;
  std::map<const Value*, Family> families_;  ///< by the whole
  std::unordered_map<const Value*, Member> members_;
  size_t num_writes_ = 0;
};

}  // namespace

InPlaceWrites in_place_writes(const Graph& graph,
                              const std::function<bool(const Value& whole)>& may_write) {
  return Finder(graph, may_write).run();
}

}  // namespace levin::graph
