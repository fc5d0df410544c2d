#include "levin/xla/stablehlo/program_table.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "levin/graph/values.h"
#include "levin/xla/stablehlo/key_words.h"

namespace levin::xla {

using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;
using graph::ValueKind;
using graph::ValueType;

namespace {

constexpr uint64_t kNoValue = ~uint64_t{0};

}  // namespace

/// Writes a graph down. Values are counted in the order in which nodes give them.
class GraphKey::Writer {
 public:
  Writer(GraphKey& key, const SplitDim& split_dim) : key_(key), split_dim_(split_dim) {}

  bool write(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (!add_node(node)) return false;
      key_.nodes_.push_back(&node);
    }
    for (const graph::Update& update : graph.updates()) {
      add(key_.places_.at(update.target));
      add(update.is_gradient ? 1 : 0);
    }
    return true;
  }

 private:
  void add(uint64_t word) { key_.words_.push_back(word); }
  void add_value(const Value* value) { add(value == nullptr ? kNoValue : key_.places_.at(value)); }

  bool add_node(const Node& node) {
    add(static_cast<uint64_t>(node.opcode()));
    if (node.opcode() == Opcode::kCallFunction) {
      add(std::bit_cast<uint64_t>(&node.op().schema()));
    }
    const auto& arguments = node.arguments();
    add(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!add_argument(arguments[i], i)) return false;
    }
    add(node.outputs().size());
    for (const Value* output : node.outputs()) {
      add_type(output->type());
      key_.places_.emplace(output, key_.places_.size());
    }
    const bool is_input =
        node.opcode() == Opcode::kPlaceholder || node.opcode() == Opcode::kGetAttr;
    if (is_input) add(is_of_device(node.output()) ? split_dim_(node) : 0);
    return true;
  }

  static bool is_of_device(const Value& value) {
    return value.type().kind == ValueKind::kTensor && value.type().device.is_xla();
  }

  void add_type(const ValueType& type) {
    add(static_cast<uint64_t>(type.kind) | static_cast<uint64_t>(type.dtype) << 8U |
        static_cast<uint64_t>(type.device.type()) << 16U | type.sizes.size() << 24U);
    for (const int64_t size : type.sizes) add(size);
    for (const int64_t stride : type.strides) add(stride);
  }

  bool add_argument(const graph::Argument& argument, size_t place) {
    if (Value* const* value = std::get_if<Value*>(&argument)) {
      add_tag(key_.words_, KeyTag::kValue);
      add_value(*value);
      return true;
    }
    if (const auto* values = std::get_if<graph::Values>(&argument)) {
      add_tag(key_.words_, KeyTag::kValues);
      add(values->size());
      for (const Value* value : *values) add_value(value);
      return true;
    }
    return add_argument_constant(*graph::constant_of(argument), place);
  }

  /// Single numbers are kept apart from the words.
  bool add_argument_constant(const c10::IValue& constant, size_t place) {
    if (constant.isInt()) {
      add_tag(key_.words_, KeyTag::kInteger);
      add_number(constant.toInt(), place);
      return true;
    }
    if (constant.isDouble()) {
      add_tag(key_.words_, KeyTag::kFloating);
      add_number(constant.toDouble(), place);
      return true;
    }
    if (constant.isTensor()) return add_number_tensor(constant.toTensor(), place);
    return add_constant(key_.words_, constant);
  }

  void add_number(int64_t number, size_t place) {
    key_.numbers_.push_back({.bits = static_cast<uint64_t>(number),
                             .is_integer = true,
                             .node = static_cast<uint32_t>(key_.nodes_.size()),
                             .argument = static_cast<uint32_t>(place)});
  }
  void add_number(double number, size_t place) {
    key_.numbers_.push_back({.bits = std::bit_cast<uint64_t>(number),
                             .node = static_cast<uint32_t>(key_.nodes_.size()),
                             .argument = static_cast<uint32_t>(place)});
  }

  /// A number that LibTorch has made a tensor of, as it does of the 2 in x * 2.
  bool add_number_tensor(const at::Tensor& tensor, size_t place) {
    if (!tensor.defined() || !tensor.is_cpu() || tensor.dim() != 0) return false;
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) return false;
    add_tag(key_.words_, KeyTag::kNumberTensor);
    add(static_cast<uint64_t>(tensor.scalar_type()));
    switch (tensor.scalar_type()) {
      case at::kDouble:
        add_number(*tensor.const_data_ptr<double>(), place);
        return true;
      case at::kLong:
        add_number(*tensor.const_data_ptr<int64_t>(), place);
        return true;
      case at::kBool:
        add(*tensor.const_data_ptr<bool>() ? 1 : 0);
        return true;
      default:
        return false;
    }
  }

  GraphKey& key_;
  const SplitDim& split_dim_;
};

bool GraphKey::assign(const Graph& graph, const SplitDim& split_dim) {
  words_.clear();
  numbers_.clear();
  nodes_.clear();
  places_.clear();
  if (!Writer(*this, split_dim).write(graph)) return false;
  hash_ = hash_of(words_);
  return true;
}

double GraphKey::Number::value() const {
  return is_integer ? static_cast<double>(static_cast<int64_t>(bits)) : std::bit_cast<double>(bits);
}

uint32_t GraphKey::place_of(const Node& node) const {
  return static_cast<uint32_t>(std::ranges::find(nodes_, &node) - nodes_.begin());
}

std::optional<size_t> GraphKey::number_of(const Node& node, size_t argument) const {
  const uint32_t place = place_of(node);
  const auto found = std::ranges::find_if(numbers_, [&](const Number& number) {
    return number.node == place && number.argument == argument;
  });
  return found == numbers_.end() ? std::nullopt : std::optional(found - numbers_.begin());
}

/// A program and the graph it was lowered from, whose nodes are no more.
struct ProgramTable::Entry {
  /// The source of one of the program's numbers in the graph.
  struct NumberSource {
    std::optional<uint32_t> tensor;  ///< a node
    std::optional<size_t> number;    ///< index among the key's numbers
  };

  Entry(const GraphKey& key, KnownProgram added)
      : hash(key.hash()), words(key.words()), numbers(key.numbers()), known(std::move(added)) {
    const Program& program = known.program;
    is_given_anew.resize(numbers.size());
    for (const Node* input : program.inputs) inputs.push_back(key.place_of(*input));
    for (const ProgramOutput& output : program.outputs) {
      updates.push_back(output.updates == nullptr ? 0 : key.place_of(*output.updates));
    }
    for (const auto* list : {&program.numbers, &program.wide_numbers}) {
      for (const RuntimeNumber& number : *list) sources.push_back(source_of(key, number));
    }
  }

  NumberSource source_of(const GraphKey& key, const RuntimeNumber& number) {
    if (number.tensor != nullptr) return {.tensor = key.place_of(*number.tensor)};
    if (number.node == nullptr) return {};
    const std::optional<size_t> place = key.number_of(*number.node, number.argument);
    if (place) is_given_anew[*place] = true;
    return {.number = place};
  }

  bool is_of(const GraphKey& key) const {
    if (key.hash() != hash || key.words() != words) return false;
    const auto& now = key.numbers();
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!is_given_anew[i] && now[i].bits != numbers[i].bits) return false;
    }
    return true;
  }

  /// Replaces the nodes of the last graph by those of this one.
  void bind(const GraphKey& key) {
    Program& program = known.program;
    for (size_t i = 0; i < inputs.size(); ++i) program.inputs[i] = key.node(inputs[i]);
    for (size_t i = 0; i < updates.size(); ++i) {
      ProgramOutput& output = program.outputs[i];
      output.value = nullptr;
      if (output.updates != nullptr) output.updates = key.node(updates[i]);
    }
    auto source = sources.begin();
    for (auto* list : {&program.numbers, &program.wide_numbers}) {
      for (RuntimeNumber& number : *list) {
        number.node = nullptr;
        if (source->tensor) number.tensor = key.node(*source->tensor);
        if (source->number) {
          const GraphKey::Number& given = key.numbers()[*source->number];
          number.node = key.node(given.node);
          number.value = given.value();
        }
        ++source;
      }
    }
  }

  uint64_t hash;
  std::vector<uint64_t> words;
  std::vector<GraphKey::Number> numbers;
  std::vector<bool> is_given_anew;  ///< by number: the program is the same whatever it is
  KnownProgram known;
  std::vector<uint32_t> inputs, updates;  ///< nodes
  std::vector<NumberSource> sources;      ///< sources of numbers, then of wide numbers
};

ProgramTable::ProgramTable(size_t capacity) : capacity_(capacity) {}
ProgramTable::~ProgramTable() = default;

const KnownProgram* ProgramTable::find(const Graph& graph, const SplitDim& split_dim) {
  has_key_ = key_.assign(graph, split_dim);
  if (!has_key_) return nullptr;
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.is_of(key_); });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  found->bind(key_);
  return &found->known;
}

const KnownProgram& ProgramTable::add(KnownProgram known) {
  if (!has_key_) return not_kept_ = std::move(known);
  if (entries_.size() == capacity_) entries_.pop_back();
  return entries_.emplace_front(key_, std::move(known)).known;
}

}  // namespace levin::xla
