#include "levin/xla/stablehlo/program.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;
using graph::ValueKind;
using graph::ValueType;

/// Floats of the host without dimensions travel together: an upload each would cost more than most
/// steps of a small network.
bool is_number(const ValueType& type) {
  return type.device.is_cpu() && type.sizes.empty() &&
         (type.dtype == at::kFloat || type.dtype == at::kDouble);
}

/// "{devices=[4,1]0,1,2,3}"
std::string sharding_text(int64_t num_partitions, int64_t split_dim, size_t rank) {
  if (split_dim < 0) return "mhlo.sharding = \"{replicated}\"";
  std::string tiles;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t count = static_cast<int64_t>(i) == split_dim ? num_partitions : 1;
    tiles += fmt::format("{}{}", i == 0 ? "" : ",", count);
  }
  std::string devices;
  for (int64_t i = 0; i < num_partitions; ++i) devices += fmt::format("{}{}", i == 0 ? "" : ",", i);
  return fmt::format("mhlo.sharding = \"{{devices=[{}]{}}}\"", tiles, devices);
}

/// Returns whether the node only gives numbers to the host: a program has no use for it.
bool gives_host_numbers(const Node& node) {
  return node.is_host_read() && std::ranges::all_of(node.outputs(), [](const Value* value) {
           return value->type().kind == ValueKind::kHost;
         });
}

class Emitter final : public LoweringState {
 public:
  Emitter(const Graph& graph, const LowerOptions& options) : graph_(graph), options_(options) {}

  Program emit();

  const Hlo& value_of(const Value& value) override;
  std::optional<Hlo> number_of(const Value& value, at::ScalarType dtype) override;

  Hlo runtime_number(double number, at::ScalarType dtype, std::optional<size_t> argument) override {
    auto& known = known_numbers_[{dtype, std::bit_cast<uint64_t>(number), argument}];
    if (known.id >= 0) return known;
    known = add_number(
        {.value = number, .node = argument ? node_ : nullptr, .argument = argument.value_or(0)},
        dtype);
    return known;
  }
  void depend_on(size_t argument) override { fixed_.emplace(node_, argument); }

  std::pair<Hlo, Hlo> random_key() override;
  int64_t next_draw() override { return num_draws_++; }
  int64_t num_replicas() const override { return options_.num_replicas; }

 private:
  static bool is_parameter(const Node& node);
  const Hlo& parameter_of(const Node& node);
  void add_call(const Node& node);
  void add_output(const Value& value, const Node* updates, size_t index);
  void add_outputs();
  void forget_fixed_numbers();
  std::vector<std::string> add_shardings();
  Hlo add_number(RuntimeNumber number, at::ScalarType dtype);
  void define(const std::vector<Hlo>& elements, at::ScalarType dtype);

  const Graph& graph_;
  const LowerOptions& options_;
  Builder hlo_;
  Program program_;
  std::unordered_map<const Value*, Hlo> values_;
  std::unordered_map<const Node*, Hlo> inputs_;
  std::unordered_map<const Node*, std::string> aliasing_;
  const Node* node_ = nullptr;  ///< the node to lower
  /// Arguments that two numbers of an operator come from may differ in the next run.
  std::map<std::tuple<at::ScalarType, uint64_t, std::optional<size_t>>, Hlo> known_numbers_;
  std::set<std::pair<const Node*, size_t>> fixed_;  ///< arguments that the program depends on
  std::map<std::pair<const Value*, at::ScalarType>, Hlo> known_inputs_;
  std::vector<Hlo> numbers_, wide_numbers_, key_;
  std::vector<Hlo> results_;
  int64_t num_draws_ = 0;
};

/// Returns whether the node is an argument of the program by itself.
bool Emitter::is_parameter(const Node& node) {
  const bool is_input = node.opcode() == Opcode::kPlaceholder || node.opcode() == Opcode::kGetAttr;
  if (!is_input) return false;
  const ValueType& type = node.output().type();
  return type.kind == ValueKind::kTensor && !is_number(type);
}

/// In the order of their first use, so that a step whose inputs are named and the same operators
/// without names are one program.
const Hlo& Emitter::parameter_of(const Node& node) {
  const auto [place, is_new] = inputs_.try_emplace(&node);
  if (is_new) {
    const ValueType& type = node.output().type();
    place->second = hlo_.parameter(type.dtype, {type.sizes.begin(), type.sizes.end()});
    program_.inputs.push_back(&node);
  }
  return place->second;
}

const Hlo& Emitter::value_of(const Value& value) {
  if (is_parameter(value.node())) return parameter_of(value.node());
  const auto found = values_.find(&value);
  if (found != values_.end()) return found->second;
  return values_[&value] = number_of(value, value.type().dtype).value();
}

std::optional<Hlo> Emitter::number_of(const Value& value, at::ScalarType dtype) {
  const bool is_input = value.node().opcode() != Opcode::kCallFunction;
  if (!is_input || !is_number(value.type()) || !at::isFloatingType(dtype)) return std::nullopt;
  const auto given = dtype == at::kDouble ? at::kDouble : at::kFloat;
  Hlo& known = known_inputs_[{&value, given}];
  if (known.id < 0) known = add_number({.tensor = &value.node()}, given);
  return hlo_.convert(known, dtype);
}

Hlo Emitter::add_number(RuntimeNumber number, at::ScalarType dtype) {
  const bool is_wide = dtype == at::kDouble;
  (is_wide ? program_.wide_numbers : program_.numbers).push_back(number);
  std::vector<Hlo>& elements = is_wide ? wide_numbers_ : numbers_;
  elements.push_back(hlo_.reserve(dtype));
  return elements.back();
}

std::pair<Hlo, Hlo> Emitter::random_key() {
  program_.draws_random_numbers = true;
  while (key_.size() < 2) key_.push_back(hlo_.reserve(at::kUInt32));
  return {key_[0], key_[1]};
}

void Emitter::add_call(const Node& node) {
  const LowerFunction* lower_node = find_lowering(node.op());
  if (lower_node == nullptr) lower_node = find_host_lowering(node.op());
  LEVIN_CHECK(lower_node != nullptr, "xla.lowering",
              "{} has no form in StableHLO; take it out of the step, or run it on the host",
              node.target());
  // Equal numbers of two operators may differ in the next run.
  known_numbers_.clear();
  node_ = &node;
  ++program_.num_operators;
  Lowering at(hlo_, node, *this);
  (*lower_node)(at);
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const Value& value = node.output(i);
    if (const std::optional<Hlo>& result = at.results()[i]) {
      values_[&value] = *result;
      continue;
    }
    LEVIN_CHECK(value.type().kind != ValueKind::kTensor || value.users().empty(), "xla.lowering",
                "result {} of {} has no form in StableHLO, and {} uses it", i, node.target(),
                value.users().empty() ? "" : value.users().front()->target());
  }
}

void Emitter::add_output(const Value& value, const Node* updates, size_t index) {
  const Hlo result = value_of(value);
  if (updates != nullptr && options_.may_donate && options_.may_donate(*updates)) {
    const Hlo& input = parameter_of(*updates);
    if (input.sizes == result.sizes && input.dtype == result.dtype) {
      aliasing_[updates] = fmt::format("tf.aliasing_output = {} : i32", results_.size());
    }
  }
  program_.outputs.push_back({.value = &value, .updates = updates, .index = index});
  results_.push_back(result);
}

void Emitter::add_outputs() {
  const graph::Values outputs = graph_.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_tensor = outputs[i] != nullptr && outputs[i]->type().kind == ValueKind::kTensor;
    if (is_tensor) add_output(*outputs[i], nullptr, i);
  }
  for (const graph::Update& update : graph_.updates()) {
    const Node& target = update.target->node();
    const bool is_state = !update.is_gradient && is_parameter(target);
    if (is_state) add_output(*update.value, &target, 0);
  }
}

/// Removes numbers that are fixed in the text from the numbers that may change.
void Emitter::forget_fixed_numbers() {
  for (auto* numbers : {&program_.numbers, &program_.wide_numbers}) {
    for (RuntimeNumber& number : *numbers) {
      if (fixed_.contains({number.node, number.argument})) number.node = nullptr;
    }
  }
}

/// The reserved elements come from one vector, the next argument.
void Emitter::define(const std::vector<Hlo>& elements, at::ScalarType dtype) {
  if (elements.empty()) return;
  const Hlo vector = hlo_.parameter(dtype, {static_cast<int64_t>(elements.size())});
  if (options_.num_partitions > 1) hlo_.set_attributes(vector, sharding_text(1, -1, 1));
  hlo_.at_start([&] {
    for (size_t i = 0; i < elements.size(); ++i) {
      hlo_.define_as_element(elements[i], vector, static_cast<int64_t>(i));
    }
  });
}

/// Attributes of arguments; those of the results are returned.
std::vector<std::string> Emitter::add_shardings() {
  const int64_t count = options_.num_partitions;
  for (const auto& [node, value] : inputs_) {
    std::string attributes;
    if (const auto alias = aliasing_.find(node); alias != aliasing_.end()) {
      attributes = alias->second;
    }
    if (count > 1) {
      const int64_t split = options_.split_dim ? options_.split_dim(*node) : -1;
      attributes += (attributes.empty() ? "" : ", ") + sharding_text(count, split, value.rank());
    }
    if (!attributes.empty()) hlo_.set_attributes(value, std::move(attributes));
  }
  if (count == 1) return {};
  return {results_.size(), sharding_text(count, -1, 0)};
}

Program Emitter::emit() {
  program_.num_replicas = options_.num_replicas;
  for (const Node& node : graph_.nodes()) {
    if (node.opcode() == Opcode::kCallFunction && !gives_host_numbers(node)) add_call(node);
  }
  add_outputs();
  forget_fixed_numbers();
  const std::vector<std::string> result_attributes = add_shardings();
  define(numbers_, at::kFloat);
  define(wide_numbers_, at::kDouble);
  define(key_, at::kUInt32);
  const std::string partitioned =
      options_.num_partitions == 1 && options_.num_replicas == 1
          ? ""
          : fmt::format("mhlo.num_partitions = {} : i32, mhlo.num_replicas = {} : i32",
                        options_.num_partitions, options_.num_replicas);
  program_.text = hlo_.finish(options_.name, results_, result_attributes, partitioned);
  return std::move(program_);
}

}  // namespace

Program lower(const Graph& graph, const LowerOptions& options) {
  return Emitter(graph, options).emit();
}

}  // namespace levin::xla
