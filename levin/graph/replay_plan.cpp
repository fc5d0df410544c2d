// From a graph to what a Replay runs: where each value lies, and which form of an operator writes
// it there.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/graph/operator_info_impl.h"
#include "levin/graph/out_variants_impl.h"
#include "levin/graph/replay_impl.h"
#include "levin/graph/stack_impl.h"
#include "levin/graph/values_impl.h"

namespace levin::graph {
namespace {

/// What values that are views of each other lie in.
struct Memory {
  enum class Kind {
    kGiven,     ///< an input or a state tensor
    kPlanned,   ///< a part of the arena
    kAdopted,   ///< allocated by the operator that gives it
    kConstant,  ///< computed once
  };
  Kind kind = Kind::kPlanned;
  c10::Storage storage = {};
  const Value* given = nullptr;
  MemoryNeed need = {};
  size_t num_live = 0;  ///< values in it that will still be read
};

struct Slot {
  at::Tensor tensor;
  size_t memory = 0;
  size_t num_uses = 0;
};

/// Views whose making reads nothing but sizes.
bool makes_views(const OperatorInfo& info) {
  constexpr std::array kOthers = {
      std::string_view("aten::expand"), std::string_view("aten::as_strided"),
      std::string_view("aten::unfold"), std::string_view("aten::alias"),
      std::string_view("aten::detach"), std::string_view("aten::chunk")};
  return info.written.empty() &&
         (info.view != ViewKind::kStrided ||
          (info.returns_view && std::ranges::count(kOthers, info.op.schema().name()) > 0));
}

bool reads_sizes_alone(const OperatorInfo& info) {
  constexpr std::array kNames = {std::string_view("aten::ones_like"),
                                 std::string_view("aten::zeros_like"),
                                 std::string_view("aten::full_like")};
  return std::ranges::count(kNames, info.op.schema().name()) > 0;
}

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {}

  ReplayProgram plan() {
    check();
    bind();
    for (const Node& node : graph_.nodes()) {
      if (node.opcode() == Opcode::kCallFunction) add(node);
      ++step_;
    }
    finish();
    lay_out();
    return std::move(program_);
  }

 private:
  struct Used {
    const Value* value;
    at::Tensor tensor;
    size_t memory;
  };

  void check() const;
  void bind();
  void bind_state(const Node& node);
  void separate_overlapping();
  void add(const Node& node);
  void add_views(const Node& node, const std::vector<Used>& used);
  void add_constant(const Node& node, const std::vector<Used>& used);
  void add_call(const Node& node, const std::vector<Used>& used);
  bool add_out_variant(const Node& node, const torch::jit::Stack& arguments);
  at::Tensor writable(const Node& node, const Value& value, const Value& written,
                      const std::vector<Used>& used, size_t& memory);
  void use(const Value& value, std::vector<Used>& used);
  void release(const std::vector<Used>& used);
  void finish();
  void lay_out();

  at::Tensor new_tensor(const ValueType& type, Memory::Kind kind, size_t& memory);
  void store(const Value& value, const at::Tensor& tensor, size_t memory);
  torch::jit::Stack read_arguments(const Node& node) const;
  bool lies_in_place(const at::Tensor& value, const at::Tensor& target) const;

  const Graph& graph_;
  ReplayProgram program_;
  OutVariants out_variants_;
  std::vector<Memory> memories_;
  std::unordered_map<const Value*, Slot> slots_;
  std::unordered_map<const Value*, at::Tensor> targets_;
  std::unordered_map<const Value*, size_t> input_numbers_;
  std::unordered_set<const Value*> updated_;
  std::unordered_set<const Value*> shared_;
  size_t step_ = 0;
};

void Planner::check() const {
  const std::vector<Node*> reads = graph_.host_reads();
  LEVIN_CHECK(reads.empty(), "graph.replay", "the host reads what {} gives{}; leave that out of it",
              std::string(reads.front()->target()),
              reads.front()->source().empty() ? "" : " in " + reads.front()->source());
  for (const Node& node : graph_.nodes()) {
    for (const Value* value : node.outputs()) {
      LEVIN_CHECK(value->type().kind != ValueKind::kTensor ||
                      value->type().dtype != at::ScalarType::Undefined,
                  "graph.replay", "what {} gives is of no known type; call propagate_types first",
                  std::string(node.target()));
    }
  }
}

void Planner::bind() {
  for (const Node* node : graph_.find_nodes(Opcode::kPlaceholder)) {
    const Value& value = node->output();
    input_numbers_[&value] = program_.inputs.size();
    if (value.users().empty()) {
      program_.inputs.push_back({node->name(), value.type(), {}});
      continue;
    }
    size_t memory = 0;
    const at::Tensor tensor = new_tensor(value.type(), Memory::Kind::kGiven, memory);
    memories_[memory].given = &value;
    program_.inputs.push_back({node->name(), value.type(), tensor});
    targets_[&value] = tensor;
    store(value, tensor, memory);
  }
  for (const Node* node : graph_.find_nodes(Opcode::kGetAttr)) bind_state(*node);
  separate_overlapping();
  for (const Update& update : graph_.updates()) {
    if (!update.is_gradient) updated_.insert(update.target);
  }
}

void Planner::bind_state(const Node& node) {
  const Value& value = node.output();
  const bool is_unused = value.users().empty();
  LEVIN_CHECK(node.tensor().defined() || is_unused, "graph.state",
              "no tensor is bound to {}; bind one, or load the graph with its state", node.name());
  if (is_unused) {
    targets_[&value] = node.tensor();
    return;
  }
  // A tensor of its own, which autograd knows nothing of.
  const at::Tensor tensor = node.tensor().detach();
  LEVIN_CHECK(ValueType::of(tensor) == value.type(), "graph.replay",
              "{} is another than was recorded; trace the function again", node.name());
  memories_.push_back({.kind = Memory::Kind::kGiven, .storage = tensor.storage(), .given = &value});
  program_.states.push_back({node.name(), node.tensor(), node.tensor().const_data_ptr()});
  targets_[&value] = node.tensor();
  store(value, tensor, memories_.size() - 1);
}

/// State tensors that have bytes in common are not written to.
void Planner::separate_overlapping() {
  struct Extent {
    const char* begin;
    const char* end;
    const Value* value;
  };
  std::vector<Extent> extents;
  for (const auto& [value, slot] : slots_) {
    if (!slot.tensor.has_storage() || input_numbers_.contains(value)) continue;
    const auto* begin = static_cast<const char*>(slot.tensor.const_data_ptr());
    const int64_t bytes = at::detail::computeStorageNbytes(
        slot.tensor.sizes(), slot.tensor.strides(), slot.tensor.itemsize());
    extents.push_back({begin, begin + bytes, value});
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  for (size_t i = 0, widest = 0; i < extents.size(); ++i) {
    if (i > 0 && extents[i].begin < extents[widest].end) {
      shared_.insert(extents[i].value);
      shared_.insert(extents[widest].value);
    }
    if (extents[i].end > extents[widest].end) widest = i;
  }
}

at::Tensor Planner::new_tensor(const ValueType& type, Memory::Kind kind, size_t& memory) {
  const auto itemsize = static_cast<size_t>(c10::elementSize(type.dtype));
  const auto bytes =
      static_cast<int64_t>(at::detail::computeStorageNbytes(type.sizes, type.strides, itemsize));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, type.device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  const at::Tensor tensor =
      at::empty({0}, at::TensorOptions().dtype(type.dtype).device(type.device));
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type.sizes, type.strides);
  memory = memories_.size();
  memories_.push_back({.kind = kind,
                       .storage = std::move(storage),
                       .need = {.bytes = bytes, .first = step_, .last = step_}});
  return tensor;
}

void Planner::store(const Value& value, const at::Tensor& tensor, size_t memory) {
  const size_t num_uses = value.users().size();
  slots_[&value] = {tensor, memory, num_uses};
  if (num_uses > 0) ++memories_[memory].num_live;
}

void Planner::use(const Value& value, std::vector<Used>& used) {
  Slot& slot = slots_.at(&value);
  if (--slot.num_uses == 0) --memories_[slot.memory].num_live;
  memories_[slot.memory].need.last = step_;
  used.push_back({&value, slot.tensor, slot.memory});
}

torch::jit::Stack Planner::read_arguments(const Node& node) const {
  return stack_of(node, [&](size_t, const Value& value) { return slots_.at(&value).tensor; });
}

void Planner::add(const Node& node) {
  const OperatorInfo& info = node.info();
  std::vector<Used> used;
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    for_each_value(node.arguments()[i], [&](const Value& value) { use(value, used); });
  }
  if (makes_views(info)) {
    add_views(node, used);
  } else if (info.written.empty() && !info.is_random && !info.makes_unwritten &&
             (used.empty() || reads_sizes_alone(info))) {
    add_constant(node, used);
  } else {
    add_call(node, used);
  }
  release(used);
}

void Planner::add_views(const Node& node, const std::vector<Used>& used) {
  torch::jit::Stack stack = read_arguments(node);
  node.op().callBoxed(&stack);
  std::vector<at::Tensor> views;
  append_results(node.info(), stack, views);
  for (size_t i = 0; i < views.size(); ++i) {
    LEVIN_CHECK(views[i].storage().is_alias_of(used.front().tensor.storage()), "graph.replay",
                "{} gave no view of its argument", std::string(node.target()));
    store(node.output(i), views[i], used.front().memory);
  }
  ++program_.report.num_views;
}

void Planner::add_constant(const Node& node, const std::vector<Used>& used) {
  torch::jit::Stack stack = read_arguments(node);
  node.op().callBoxed(&stack);
  std::vector<at::Tensor> results;
  append_results(node.info(), stack, results);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    memories_.push_back({.kind = Memory::Kind::kConstant, .storage = results[i].storage()});
    store(node.output(i), results[i], memories_.size() - 1);
  }
  ++program_.report.num_constants;
}

/// What an operator may write to: the tensor itself where nobody else will look at that memory.
at::Tensor Planner::writable(const Node& node, const Value& value, const Value& written,
                             const std::vector<Used>& used, size_t& memory) {
  const Slot& slot = slots_.at(&value);
  memory = slot.memory;
  const Memory& lies_in = memories_[memory];
  const bool is_free = slot.num_uses == 0 && lies_in.num_live == 0 &&
                       std::ranges::none_of(used, [&](const Used& other) {
                         return other.value != &value && other.memory == memory;
                       });
  const bool may_change = lies_in.kind == Memory::Kind::kGiven
                              ? updated_.contains(lies_in.given) && !shared_.contains(lies_in.given)
                              : lies_in.kind != Memory::Kind::kConstant;
  // An empty one that is given for the result grows.
  const bool fits = ValueType::of(slot.tensor) == written.type();
  if (is_free && may_change && fits) return slot.tensor;
  const at::Tensor old = slot.tensor;
  const at::Tensor copy = new_tensor(written.type(), Memory::Kind::kPlanned, memory);
  if (!node.info().overwrites) {
    LEVIN_CHECK(fits, "graph.replay", "{} changes the size of what it writes to",
                std::string(node.target()));
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    program_.instructions.push_back({.op = op, .arguments = {copy, old, false}});
    ++program_.report.num_copies;
  }
  return copy;
}

void Planner::add_call(const Node& node, const std::vector<Used>& used) {
  const OperatorInfo& info = node.info();
  size_t num_written = 0;
  for (const size_t index : info.written) num_written += num_values(node.arguments()[index]);
  const size_t first_written = node.outputs().size() - num_written - (info.is_random ? 1 : 0);
  std::vector<std::pair<at::Tensor, size_t>> written;
  std::unordered_map<const Value*, size_t> seen;
  const auto tensor_of = [&](size_t parameter, const Value& value) {
    if (std::ranges::count(info.written, parameter) == 0) return slots_.at(&value).tensor;
    const auto [place, is_new] = seen.try_emplace(&value, written.size());
    if (is_new) {
      size_t memory = 0;
      const Value& result = node.output(first_written + written.size());
      const at::Tensor tensor = writable(node, value, result, used, memory);
      written.emplace_back(tensor, memory);
    } else {
      written.push_back(written[place->second]);
    }
    return written[place->second].first;
  };
  torch::jit::Stack arguments = stack_of(node, tensor_of);
  const size_t num_results = first_written;
  const bool makes_nothing = info.makes_unwritten && written.empty();
  if (makes_nothing) {
    size_t memory = 0;
    const at::Tensor tensor = new_tensor(node.output().type(), Memory::Kind::kPlanned, memory);
    store(node.output(), tensor, memory);
    return;
  }
  ++program_.report.num_operators;
  if (num_results == 0 || !written.empty() || !add_out_variant(node, arguments)) {
    Instruction call{.op = info.op, .arguments = std::move(arguments)};
    for (size_t i = 0; i < num_results; ++i) {
      const Value& value = node.output(i);
      at::Tensor& adopted = call.adopted.emplace_back();
      if (value.type().kind != ValueKind::kTensor || value.users().empty()) continue;
      size_t memory = 0;
      adopted = new_tensor(value.type(), Memory::Kind::kAdopted, memory);
      store(value, adopted, memory);
    }
    call.gives_list =
        info.is_result.size() == 1 &&
        info.op.schema().returns()[0].type()->isSubtypeOf(*c10::ListType::ofTensors());
    LEVIN_CHECK(num_results == 0 || call.gives_list || info.is_result.size() == num_results,
                "graph.replay",
                "{} both gives tensors and hands some back, which cannot be run again", info.name);
    program_.report.num_allocating += num_results > 0 ? 1 : 0;
    program_.instructions.push_back(std::move(call));
  }
  for (size_t i = 0; i < written.size(); ++i) {
    store(node.output(num_results + i), written[i].first, written[i].second);
  }
}

bool Planner::add_out_variant(const Node& node, const torch::jit::Stack& arguments) {
  const OperatorInfo& info = node.info();
  std::optional<c10::Device> device;
  for (const Value* value : node.outputs()) {
    if (value->type().kind == ValueKind::kRandom) continue;
    if (value->type().kind != ValueKind::kTensor) return false;
    device = value->type().device;
  }
  if (!device || info.is_result.size() + (info.is_random ? 1 : 0) != node.outputs().size()) {
    return false;
  }
  const c10::DispatchKey key = device->is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  const auto out = out_variants_.find(info, key);
  if (!out) return false;
  Instruction call{.op = *out, .arguments = arguments};
  for (size_t i = 0; i < info.is_result.size(); ++i) {
    size_t memory = 0;
    const at::Tensor place = new_tensor(node.output(i).type(), Memory::Kind::kPlanned, memory);
    store(node.output(i), place, memory);
    call.arguments.emplace_back(place);
  }
  program_.instructions.push_back(std::move(call));
  return true;
}

/// Memory that an operator allocated goes back after its last reader.
void Planner::release(const std::vector<Used>& used) {
  std::unordered_set<size_t> looked_at;
  for (const Used& one : used) {
    const Memory& memory = memories_[one.memory];
    if (!looked_at.insert(one.memory).second) continue;
    if (memory.kind != Memory::Kind::kAdopted || memory.num_live > 0) continue;
    if (!program_.instructions.empty()) {
      program_.instructions.back().released.push_back(memory.storage);
    }
  }
}

bool Planner::lies_in_place(const at::Tensor& value, const at::Tensor& target) const {
  return value.has_storage() && value.storage().is_alias_of(target.storage()) &&
         value.storage_offset() == target.storage_offset() && value.sizes() == target.sizes() &&
         value.strides() == target.strides();
}

void Planner::finish() {
  const auto tensor_of = [&](const Value* value) {
    const auto slot = value == nullptr ? slots_.end() : slots_.find(value);
    if (slot == slots_.end()) return at::Tensor();
    memories_[slot->second.memory].need.last = step_;
    return slot->second.tensor;
  };
  for (const Value* value : graph_.outputs()) program_.outputs.push_back(tensor_of(value));
  for (const Update& update : graph_.updates()) {
    const at::Tensor value = tensor_of(update.value);
    const at::Tensor target =
        targets_.contains(update.target) ? targets_.at(update.target) : at::Tensor();
    if (!value.defined() || !target.defined()) continue;
    const auto input = input_numbers_.find(update.target);
    if (!update.is_gradient && lies_in_place(value, target)) {
      if (input != input_numbers_.end()) program_.inputs[input->second].is_written = true;
      continue;
    }
    const Memory& memory = memories_[slots_.at(update.value).memory];
    const bool is_kept = memory.kind == Memory::Kind::kGiven ||
                         (update.is_gradient && memory.kind == Memory::Kind::kConstant);
    program_.updates.push_back({target, input == input_numbers_.end() ? SIZE_MAX : input->second,
                                value, update.is_gradient, is_kept});
  }
}

void Planner::lay_out() {
  std::vector<MemoryNeed> needs;
  std::vector<const Memory*> planned;
  c10::Device device = at::kCPU;
  for (const Memory& memory : memories_) {
    if (memory.kind != Memory::Kind::kPlanned) continue;
    planned.push_back(&memory);
    needs.push_back(memory.need);
    device = memory.storage.device();
  }
  const MemoryPlan plan = plan_memory(needs);
  program_.arena = at::empty({plan.bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  auto* start = static_cast<char*>(program_.arena.mutable_data_ptr());
  for (size_t i = 0; i < planned.size(); ++i) {
    LEVIN_CHECK(planned[i]->storage.device() == device, "graph.replay",
                "values lie on {} and on {}; replay takes those of one device",
                c10::str(planned[i]->storage.device()), c10::str(device));
    // Gradients may outlive the replay, and with them its arena.
    planned[i]->storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        {start + plan.offsets[i], new at::Tensor(program_.arena),
         [](void* arena) { delete static_cast<at::Tensor*>(arena); }, device});
  }
  program_.report.arena_bytes = plan.bytes;
  program_.report.needed_bytes = plan.needed;
}

}  // namespace

ReplayProgram plan_replay(const Graph& graph) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return Planner(graph).plan();
}

}  // namespace levin::graph
