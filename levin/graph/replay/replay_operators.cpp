// Turns an operator into the instructions of a Replay: it chooses the form that writes its results
// where they lie.

#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/replay/replay_impl.h"
#include "levin/graph/replay/replay_planner_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

bool reads_sizes_alone(const OperatorInfo& info) {
  constexpr std::array kNames = {std::string_view("aten::ones_like"),
                                 std::string_view("aten::zeros_like"),
                                 std::string_view("aten::full_like")};
  return std::ranges::count(kNames, info.op.schema().name()) > 0;
}

/// Returns whether the operator gives the same in each run, so that it is run once.
bool gives_a_constant(const Node& node, bool reads_values) {
  const OperatorInfo& info = info_of(node);
  return info.written.empty() && !info.is_random && !info.makes_unwritten && !info.is_host_read &&
         !info.is_collective && (!reads_values || reads_sizes_alone(info));
}

/// Returns the generator from which the operator draws.
at::Generator generator_of(const Node& node) {
  for (const Argument& argument : node.arguments()) {
    const c10::IValue* constant = constant_of(argument);
    if (constant != nullptr && constant->isGenerator()) return constant->toGenerator();
  }
  return at::globalContext().defaultGenerator(node.output().type().device);
}

/// Returns whether the result is the seed or the offset of random numbers that attention without
/// dropout does not draw. Nobody reads it, and it need not lie where attention is computed:
/// LibTorch's kernels give it on the host while no graph of the device is captured.
bool is_unread_seed(const Node& node, size_t result) {
  const c10::FunctionSchema& schema = node.op().schema();
  if (!schema.name().starts_with("aten::_scaled_dot_product_")) return false;
  const auto rate = schema.argumentIndexWithName("dropout_p");
  const c10::IValue* constant =
      rate ? constant_of(node.arguments()[static_cast<size_t>(*rate)]) : nullptr;
  if (constant == nullptr || !constant->isDouble() || constant->toDouble() != 0.0) return false;
  constexpr std::array kNames = {std::string_view("philox_seed"), std::string_view("philox_offset"),
                                 std::string_view("rng_state"), std::string_view("unused")};
  return result < schema.returns().size() &&
         std::ranges::count(kNames, schema.returns()[result].name()) > 0;
}

std::string place_of(const Node& node) {
  return node.source().empty() ? "" : ", in " + node.source();
}

/// A graph of the device counts the draws of the device's own generator alone.
bool draws_from_another_generator(const Node& node, c10::Device device) {
  return node.is_random() && node.output().type().device == device &&
         generator_of(node) != at::globalContext().defaultGenerator(device);
}

/// Kernels get the number of a CPU tensor without dims by value, as they get one of the host.
/// Another CPU tensor is copied to the device first, and such a copy waits, which no capture
/// allows.
bool is_passed_by_value(const Node& node, const ValueType& type) {
  const std::string_view name = node.op().schema().name();
  if (name.starts_with("aten::_scaled_dot_product_")) return true;  // seeds, which are not copied
  return type.sizes.empty() && node.op().hasTag(at::Tag::pointwise) && name != "aten::where";
}

/// Returns whether the node reduces tensors that form one message if they lie side by side.
bool reduces_a_row(const Node& node) {
  const bool is_reduction =
      node.target() == "levin::all_reduce_" || node.target() == "levin::all_reduce_start_";
  if (!is_reduction) return false;
  const auto& tensors = node.inputs();
  return tensors.size() > 1 && std::ranges::all_of(tensors, [&](const Value* tensor) {
           return tensor->type().device.is_cpu() &&
                  tensor->type().dtype == tensors.front()->type().dtype;
         });
}

}  // namespace

/// Which writes through views are done where the views lie.
void ReplayPlanner::find_writes_in_place() {
  in_place_ = in_place_writes(graph_, [&](const Value& whole) {
    const Node& node = whole.node();
    if (node.opcode() != Opcode::kCallFunction) {
      return memory_.holds(&whole) && memory_.may_change(whole);
    }
    return !gives_a_constant(node, !node.inputs().empty());
  });
  result_places_ = results_in_place(graph_, in_place_);
}

/// Memory without contents, which a result may have been put into already.
PlacedTensor ReplayPlanner::new_memory(const Node& node) {
  const auto early = made_early_.find(&node.output());
  return early == made_early_.end() ? memory_.make(node.output().type(), MemoryKind::kPlanned)
                                    : early->second;
}

/// The place of a result that an operator writes: where its copy would go, or memory of its own.
PlacedTensor ReplayPlanner::place_for(const Value& result) {
  const auto found = result_places_.find(&result);
  if (found == result_places_.end()) return memory_.make(result.type(), MemoryKind::kPlanned);
  const ResultPlace& place = found->second;
  left_out_.insert(place.copy);
  PlacedTensor whole;
  if (memory_.holds(place.whole)) {
    whole = memory_.at(*place.whole);
  } else {
    const auto [early, is_new] = made_early_.try_emplace(place.whole);
    if (is_new) early->second = memory_.make(place.whole->type(), MemoryKind::kPlanned);
    whole = early->second;
  }
  return {whole.tensor.as_strided(place.sizes, place.strides, place.offset), whole.memory};
}

void ReplayPlanner::add(const Node& node) {
  const OperatorInfo& info = info_of(node);
  std::vector<const Value*> used;
  memory_.begin_operator();
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    for_each_value(node.arguments()[i], [&](const Value& value) { used.push_back(&value); });
  }
  for (const Value* value : used) memory_.use(*value);
  if (info.makes_view()) {
    add_views(node, *used.front());
  } else if (in_place_.scatters.contains(&node)) {
    memory_.store(node.output(), memory_.at(*used.front()));
    ++program_.report.num_views;
  } else if (gives_a_constant(node, !used.empty())) {
    add_constant(node);
  } else {
    const bool is_captured = can_be_captured(node, used);
    row_ += is_captured == is_captured_ ? 0 : 1;
    is_captured_ = is_captured;
    add_call(node);
  }
  release(used);
}

/// A graph of the device holds addresses, and numbers that the host gave when it was captured.
bool ReplayPlanner::can_be_captured(const Node& node, const std::vector<const Value*>& used) const {
  if (!device_ || !node.target().starts_with("aten::") || node.is_host_read()) return false;
  if (draws_from_another_generator(node, *device_)) return false;
  const auto lies_on_device = [&](const Value* value) {
    const ValueType& type = value->type();
    return type.kind == ValueKind::kRandom || type.kind == ValueKind::kUndefined ||
           (type.kind == ValueKind::kTensor && type.device == *device_);
  };
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    // A number that the host does not read from memory, as a length: it is the same each time.
    const bool is_number = node.output(i).type().kind == ValueKind::kHost;
    if (!is_number && !is_unread_seed(node, i) && !lies_on_device(&node.output(i))) return false;
  }
  return std::ranges::all_of(used, [&](const Value* value) {
    if (value->type().kind != ValueKind::kTensor) return lies_on_device(value);
    const auto adoption = adoptions_.find(memory_.at(*value).memory);
    const bool moves = adoption != adoptions_.end() && !adoption->second.is_captured;
    const bool is_constant = memory_.kind(*value) == MemoryKind::kConstant;
    const bool is_number = is_constant && is_passed_by_value(node, value->type());
    return is_number || (lies_on_device(value) && !moves);
  });
}

void ReplayPlanner::push(Instruction instruction) {
  instruction.is_captured = is_captured_;
  program_.report.num_captured += is_captured_ ? 1 : 0;
  program_.instructions.push_back(std::move(instruction));
}

/// Frees memory that an operator allocated after its last reader. A captured operator does not
/// allocate again: its memory is freed during that capture, or never.
void ReplayPlanner::release(const std::vector<const Value*>& used) {
  if (program_.instructions.empty()) return;
  for (auto& [number, storage] : memory_.released(used)) {
    const Adoption& adoption = adoptions_.at(number);
    const bool can_come_again = !adoption.is_captured || adoption.row == row_;
    if (can_come_again) program_.instructions.back().released.push_back(std::move(storage));
  }
}

/// The operator's results when it runs now, with no contents in the memory yet.
std::vector<at::Tensor> ReplayPlanner::run(const Node& node) const {
  torch::jit::Stack stack =
      stack_of(node, [&](size_t, const Value& value) { return memory_.at(value).tensor; });
  node.op().callBoxed(&stack);
  std::vector<at::Tensor> results;
  append_results(info_of(node), stack, results);
  return results;
}

void ReplayPlanner::add_views(const Node& node, const Value& whole) {
  const PlacedTensor place = memory_.at(whole);
  const std::vector<at::Tensor> views = run(node);
  for (size_t i = 0; i < views.size(); ++i) {
    LEVIN_CHECK(views[i].storage().is_alias_of(place.tensor.storage()), "graph.replay",
                "{} did not return a view of its argument", std::string(node.target()));
    memory_.store(node.output(i), {views[i], place.memory});
  }
  ++program_.report.num_views;
}

void ReplayPlanner::add_constant(const Node& node) {
  const std::vector<at::Tensor> results = run(node);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    LEVIN_CHECK(results[i].scalar_type() == node.output(i).type().dtype, "graph.replay",
                "{} returns {} but returned {} in the recording, because the default dtype was "
                "changed within the step; pass the dtype",
                node.target(), c10::toString(results[i].scalar_type()),
                c10::toString(node.output(i).type().dtype));
    memory_.store(node.output(i), memory_.keep(results[i], MemoryKind::kConstant));
  }
  ++program_.report.num_constants;
}

/// Returns whether the tensor's place suits the operator, after the tensors that it writes before.
/// In a row each begins on a cache line or is copied there: elsewhere, operators may sum in another
/// order.
bool ReplayPlanner::lies_well(const Node& node, const PlacedTensor& place,
                              const std::vector<PlacedTensor>& before) const {
  if (!reduces_a_row(node)) return true;
  size_t offset = 0;
  for (const PlacedTensor& other : before) offset += other.tensor.nbytes();
  constexpr size_t kCacheLine = 64;
  return offset % kCacheLine == 0 && memory_.may_join(place);
}

/// The tensor that an operator may write to: the given one if nobody else reads that memory later.
PlacedTensor ReplayPlanner::writable(const Node& node, const Value& value, const Value& result,
                                     const std::vector<PlacedTensor>& before) {
  const PlacedTensor old = memory_.at(value);
  if (in_place_.written.contains(&value)) return old;
  // An empty one that is given for the result grows.
  const bool fits = ValueType::of(old.tensor) == result.type();
  if (fits && memory_.may_write(value) && lies_well(node, old, before)) return old;
  // Other ranks write into this memory, and not into a copy of it.
  const bool needs_place = info_of(node).is_wait || node.target() == "levin::barrier_";
  LEVIN_CHECK(!needs_place || old.tensor.numel() == 0, "graph.replay",
              "{} got a tensor whose old contents are read later; let no operator read between a "
              "start and its wait",
              node.target());
  PlacedTensor copy = memory_.make(result.type(), MemoryKind::kPlanned);
  if (!info_of(node).overwrites) {
    LEVIN_CHECK(fits, "graph.replay", "{} changes the size of what it writes to",
                std::string(node.target()));
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    push({.op = op, .arguments = {copy.tensor, old.tensor, false}});
    ++program_.report.num_copies;
  }
  return copy;
}

/// Returns the arguments as the operator takes them; a value that it writes twice is one tensor.
torch::jit::Stack ReplayPlanner::arguments_of(const Node& node, size_t first_written,
                                              std::vector<PlacedTensor>& written) {
  std::unordered_map<const Value*, size_t> seen;
  return stack_of(node, [&](size_t parameter, const Value& value) {
    if (std::ranges::count(info_of(node).written, parameter) == 0) return memory_.at(value).tensor;
    const auto [place, is_new] = seen.try_emplace(&value, written.size());
    const Value& result = node.output(first_written + written.size());
    written.push_back(is_new ? writable(node, value, result, written)
                             : PlacedTensor(written[place->second]));
    return written.back().tensor;
  });
}

void ReplayPlanner::add_call(const Node& node) {
  const OperatorInfo& info = info_of(node);
  size_t num_written = 0;
  for (const size_t index : info.written) num_written += num_values(node.arguments()[index]);
  const size_t num_results = node.outputs().size() - num_written - (info.is_random ? 1 : 0);
  std::vector<PlacedTensor> written;
  torch::jit::Stack arguments = arguments_of(node, num_results, written);
  if (info.makes_unwritten && written.empty()) {
    memory_.store(node.output(), new_memory(node));
    return;
  }
  if (left_out_.contains(&node)) {
    memory_.store(node.output(), written.front());
    ++program_.report.num_left_out;
    return;
  }
  if (reduces_a_row(node)) memory_.join(written);
  if (info.is_collective) note_sent(node);
  ++program_.report.num_operators;
  note_changes(node, written);
  const bool may_have_out_variant = num_results > 0 && written.empty() && !info.is_host_read;
  if (!may_have_out_variant || !add_out_variant(node, arguments)) {
    add_allocating(node, std::move(arguments), num_results);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    memory_.store(node.output(num_results + i), written[i]);
  }
}

/// Notes the tensors that a collective reads alone: other ranks read them too.
void ReplayPlanner::note_sent(const Node& node) {
  const OperatorInfo& info = info_of(node);
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    if (std::ranges::count(info.written, i) > 0) continue;
    for_each_value(node.arguments()[i], [&](const Value& value) { memory_.note_sent(value); });
  }
}

/// Notes the inputs, state and generators that the node changes, so that they can be restored.
void ReplayPlanner::note_changes(const Node& node, const std::vector<PlacedTensor>& written) {
  if (reads_left_ == 0) return;
  LEVIN_CHECK(!node.target().starts_with("levin::"), "graph.replay",
              "the host reads the result of {}{} after the ranks have exchanged tensors; leave "
              "that read out of the function",
              graph_.host_reads().back()->target(), place_of(*graph_.host_reads().back()));
  for (const PlacedTensor& place : written) {
    if (memory_.kind(place) == MemoryKind::kGiven) program_.undo.tensors.push_back(place.tensor);
  }
  if (!node.is_random()) return;
  const at::Generator generator = generator_of(node);
  if (std::ranges::count(program_.undo.generators, generator) == 0) {
    program_.undo.generators.push_back(generator);
  }
}

/// A clone has no kernel that writes to a given place, but a copy does the same.
bool ReplayPlanner::add_copy(const Node& node, const torch::jit::Stack& arguments) {
  const PlacedTensor place = place_for(node.output());
  memory_.store(node.output(), place);
  const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  push({.op = copy, .arguments = {place.tensor, arguments.front(), false}});
  return true;
}

/// Arithmetic with a number: LibTorch makes a tensor of the number, and calls the operator of two
/// tensors.
bool ReplayPlanner::add_with_number(const Node& node, torch::jit::Stack arguments) {
  const c10::FunctionSchema& schema = node.op().schema();
  const auto op = c10::Dispatcher::singleton().findSchema({schema.name(), "out"});
  if (!op) return false;
  at::Tensor number = c10::scalar_to_tensor(arguments[1].toScalar());
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  arguments[1] = number;
  const PlacedTensor place = place_for(node.output());
  memory_.store(node.output(), place);
  arguments.emplace_back(place.tensor);
  push({.op = *op, .arguments = std::move(arguments)});
  return true;
}

bool ReplayPlanner::add_out_variant(const Node& node, const torch::jit::Stack& arguments) {
  const OperatorInfo& info = info_of(node);
  if (info.name == "aten::clone") return add_copy(node, arguments);
  constexpr std::array kWithNumber = {
      std::string_view("aten::add.Scalar"), std::string_view("aten::sub.Scalar"),
      std::string_view("aten::mul.Scalar"), std::string_view("aten::div.Scalar")};
  const bool has_number = std::ranges::count(kWithNumber, info.name) > 0;
  if (has_number && node.output().type().device.is_cpu()) return add_with_number(node, arguments);
  const auto out = out_variant_of(node);
  if (!out) return false;
  Instruction call{.op = *out, .arguments = arguments};
  for (size_t i = 0; i < info.is_result.size(); ++i) {
    const PlacedTensor place = place_for(node.output(i));
    memory_.store(node.output(i), place);
    call.arguments.emplace_back(place.tensor);
  }
  choose_matmul(call);
  push(std::move(call));
  return true;
}

void ReplayPlanner::choose_matmul(Instruction& call) {
  if (is_captured_) return;
  const auto block_k = matmuls_.block_k(call.op, call.arguments);
  if (!block_k) return;
  const MatmulOperands operands = *matmul_operands(call.op, call.arguments);
  const ValueType scratch{
      .dtype = at::kFloat, .sizes = {Matmul::scratch_numel(operands, *block_k)}, .strides = {1}};
  call.matmul.emplace(operands, *block_k, memory_.make(scratch, MemoryKind::kPlanned).tensor);
  ++program_.report.num_matmuls;
}

/// One that allocates its results, if it gives any.
void ReplayPlanner::add_allocating(const Node& node, torch::jit::Stack arguments,
                                   size_t num_results) {
  const OperatorInfo& info = info_of(node);
  Instruction call{.op = info.op, .arguments = std::move(arguments)};
  for (size_t i = 0; i < num_results; ++i) {
    const Value& value = node.output(i);
    at::Tensor& adopted = call.adopted.emplace_back();
    if (value.type().kind != ValueKind::kTensor || value.users().empty()) continue;
    if (is_unread_seed(node, i)) {
      const auto kind = at::TensorOptions(value.type().dtype).device(value.type().device);
      const at::Tensor unread = at::zeros(value.type().sizes, kind);
      memory_.store(value, memory_.keep(unread, MemoryKind::kConstant));
      continue;
    }
    const PlacedTensor place = memory_.make(value.type(), MemoryKind::kAdopted);
    adopted = place.tensor;
    memory_.store(value, place);
    adoptions_[place.memory] = {.is_captured = is_captured_, .row = row_};
  }
  if (info.is_host_read) {
    call.read = node.host_read();
    call.read_number = program_.num_reads++;
    --reads_left_;
  }
  call.gives_list = info.is_result.size() == 1 &&
                    info.op.schema().returns()[0].type()->isSubtypeOf(*c10::ListType::ofTensors());
  LEVIN_CHECK(num_results == 0 || call.gives_list || info.is_result.size() == num_results,
              "graph.replay",
              "{} returns new tensors and some of its arguments, which a replay cannot reproduce",
              info.name);
  program_.report.num_allocating += num_results > 0 ? 1 : 0;
  push(std::move(call));
}

}  // namespace levin::graph
