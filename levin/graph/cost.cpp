#include "levin/graph/cost.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/operator_info_impl.h"
#include "levin/graph/values_impl.h"

namespace levin::graph {
namespace {

double numel(const ValueType& type) {
  return std::accumulate(type.sizes.begin(), type.sizes.end(), 1.0, std::multiplies());
}

double bytes_of(const ValueType& type) {
  if (type.kind != ValueKind::kTensor) return 0.0;
  return numel(type) * static_cast<double>(c10::elementSize(type.dtype));
}

const ValueType& type_of(const Node& node, size_t argument) { return node.input(argument)->type(); }

/// [..., m, k] by [k, n]: two for each of the m * k * n products.
double product_flops(const ValueType& left, const ValueType& result) {
  return 2.0 * numel(result) * static_cast<double>(left.sizes.back());
}

/// For each element of the output, a product with each of the weights that reach it.
double convolution_flops(const ValueType& input, const ValueType& weight, const ValueType& output,
                         bool is_transposed) {
  if (weight.sizes.size() < 2 || weight.sizes[0] == 0) return 0.0;
  const double weights_of_channel = numel(weight) / static_cast<double>(weight.sizes[0]);
  return 2.0 * numel(is_transposed ? input : output) * weights_of_channel;
}

bool is_true(const Argument& argument) {
  const c10::IValue* constant = constant_of(argument);
  return constant != nullptr && constant->isBool() && constant->toBool();
}

/// One product for the gradient of the input, one for that of the weight, as far as they are asked.
double convolution_backward_flops(const Node& node) {
  const bool is_transposed = is_true(node.arguments()[7]);
  const double forward =
      convolution_flops(type_of(node, 1), type_of(node, 2), type_of(node, 0), is_transposed);
  const auto mask = constant_of(node.arguments()[10])->toBoolList();
  return forward * ((mask[0] ? 1.0 : 0.0) + (mask[1] ? 1.0 : 0.0));
}

/// Two products of [queries, keys]; the backward pass makes five.
double attention_flops(const ValueType& query, const ValueType& key, double products) {
  const double keys = static_cast<double>(key.sizes[key.sizes.size() - 2]);
  return products * 2.0 * numel(query) * keys;
}

using FlopsOf = double (*)(const Node& node);

// As torch.utils.flop_counter; whatever else there is costs one for each element of its results.
const std::map<std::string_view, FlopsOf>& flop_formulas() {
  static const std::map<std::string_view, FlopsOf> kFormulas = {
      {"aten::mm",
       [](const Node& node) { return product_flops(type_of(node, 0), node.output().type()); }},
      {"aten::bmm",
       [](const Node& node) { return product_flops(type_of(node, 0), node.output().type()); }},
      {"aten::addmm",
       [](const Node& node) { return product_flops(type_of(node, 1), node.output().type()); }},
      {"aten::baddbmm",
       [](const Node& node) { return product_flops(type_of(node, 1), node.output().type()); }},
      {"aten::mv",
       [](const Node& node) { return product_flops(type_of(node, 0), node.output().type()); }},
      {"aten::convolution",
       [](const Node& node) {
         return convolution_flops(type_of(node, 0), type_of(node, 1), node.output().type(),
                                  is_true(node.arguments()[6]));
       }},
      {"aten::convolution_backward", convolution_backward_flops},
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [](const Node& node) { return attention_flops(type_of(node, 0), type_of(node, 1), 2); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [](const Node& node) { return attention_flops(type_of(node, 1), type_of(node, 2), 5); }},
      {"aten::_scaled_dot_product_efficient_attention",
       [](const Node& node) { return attention_flops(type_of(node, 0), type_of(node, 1), 2); }},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       [](const Node& node) { return attention_flops(type_of(node, 1), type_of(node, 2), 5); }},
  };
  return kFormulas;
}

bool is_view(const Node& node) { return node.info().returns_view && node.info().written.empty(); }

double flops_of(const Node& node) {
  const auto formula = flop_formulas().find(node.op().schema().name());
  if (formula != flop_formulas().end()) return formula->second(node);
  double elements = 0.0;
  for (const Value* output : node.outputs()) {
    if (output->type().kind == ValueKind::kTensor) elements += numel(output->type());
  }
  return elements;
}

double traffic_of(const Node& node) {
  double bytes = 0.0;
  for (const Value* input : node.inputs()) {
    if (input != nullptr) bytes += bytes_of(input->type());
  }
  for (const Value* output : node.outputs()) bytes += bytes_of(output->type());
  return bytes;
}

bool computes_in_half(const Node& node) {
  return std::ranges::any_of(node.outputs(), [](const Value* output) {
    return output->type().kind == ValueKind::kTensor &&
           c10::isReducedFloatingType(output->type().dtype);
  });
}

void check_types(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.outputs()) {
      LEVIN_CHECK(value->type().kind != ValueKind::kTensor ||
                      value->type().dtype != at::ScalarType::Undefined,
                  "graph.cost", "what {} gives is of no known type; call propagate_types first",
                  std::string(node.target()));
    }
  }
}

}  // namespace

const std::vector<DeviceDescription>& known_devices() {
  constexpr double kTera = 1e12, kGiga = 1e9;
  static const std::vector<DeviceDescription> kDevices = {
      {"cpu", 60 * kGiga, 60 * kGiga, 10 * kGiga, 16 * kGiga, 2e-6},
      {"a100", 156 * kTera, 312 * kTera, 2039 * kGiga, 80 * kGiga, 5e-6},
      {"h100", 495 * kTera, 989 * kTera, 3350 * kGiga, 80 * kGiga, 5e-6},
      {"h200", 495 * kTera, 989 * kTera, 4800 * kGiga, 141 * kGiga, 5e-6},
      {"tpu-v5e", 99 * kTera, 197 * kTera, 819 * kGiga, 16 * kGiga, 0.0},
      {"tpu-v4", 138 * kTera, 275 * kTera, 1228 * kGiga, 32 * kGiga, 0.0},
      {"tpu-v6e", 459 * kTera, 918 * kTera, 1640 * kGiga, 32 * kGiga, 0.0}};
  return kDevices;
}

std::optional<DeviceDescription> find_device(std::string_view name) {
  const auto found = std::ranges::find(known_devices(), name, &DeviceDescription::name);
  return found == known_devices().end() ? std::nullopt : std::optional(*found);
}

GraphCost cost_of(const Graph& graph, const DeviceDescription& device) {
  check_types(graph);
  GraphCost cost;
  for (const Node& node : graph.nodes()) {
    if (node.opcode() != Opcode::kCallFunction || is_view(node)) continue;
    NodeCost one{.node = &node, .flops = flops_of(node), .bytes = traffic_of(node)};
    const double rate = computes_in_half(node) ? device.half_flops_per_s : device.flops_per_s;
    one.seconds = std::max(one.flops / rate, one.bytes / device.bytes_per_s) + device.operator_s;
    cost.flops += one.flops;
    cost.bytes += one.bytes;
    cost.seconds += one.seconds;
    cost.nodes.push_back(one);
  }
  return cost;
}

namespace {

/// What values that are views of each other lie in.
struct Block {
  LiveValue live;
  size_t num_readers = 0;  ///< values in it that will still be read
  bool is_owned = false;   ///< an input's or a state tensor's: it stays
};

class Liveness {
 public:
  explicit Liveness(const Graph& graph) : graph_(graph) {
    for (const Update& update : graph.updates()) {
      if (update.is_gradient && update.value != nullptr) gradients_.insert(update.value);
    }
  }

  MemoryProfile run() {
    size_t index = 0;
    for (const Node& node : graph_.nodes()) {
      if (node.opcode() == Opcode::kCallFunction) {
        call(node);
      } else {
        bind(node);
      }
      look(index++);
      for (const size_t block : read_) release(block);
      read_.clear();
    }
    return std::move(profile_);
  }

 private:
  void bind(const Node& node) {
    for (const Value* value : node.outputs()) {
      if (value->type().kind != ValueKind::kTensor) continue;
      const bool is_input = node.opcode() == Opcode::kPlaceholder;
      const bool learns = !is_input && node.tensor().defined() && node.tensor().requires_grad();
      const auto use =
          is_input ? MemoryUse::kInput : (learns ? MemoryUse::kParameter : MemoryUse::kState);
      add(*value, use, /*is_owned=*/true);
    }
  }

  void call(const Node& node) {
    const OperatorInfo& info = node.info();
    std::vector<size_t> written;
    for (size_t i = 0; i < info.num_parameters(); ++i) {
      for_each_value(node.arguments()[i], [&](const Value& value) {
        const size_t block = blocks_of_.at(&value);
        if (--readers_.at(&value) == 0) --blocks_[block].num_readers;
        read_.push_back(block);
        if (std::ranges::count(info.written, i) > 0) written.push_back(block);
      });
    }
    const size_t num_tensors = node.outputs().size() - (info.is_random ? 1 : 0);
    const size_t num_results = num_tensors - written.size();
    for (size_t i = 0; i < num_tensors; ++i) {
      const Value& value = node.output(i);
      if (value.type().kind != ValueKind::kTensor) continue;
      if (i < num_results && is_view(node)) {
        share(value, read_.front());
      } else if (i >= num_results && blocks_[written[i - num_results]].num_readers == 0) {
        share(value, written[i - num_results]);  // in place
      } else {
        add(value, gradients_.contains(&value) ? MemoryUse::kGradient : MemoryUse::kValue, false);
      }
    }
  }

  void add(const Value& value, MemoryUse use, bool is_owned) {
    const ValueType& type = value.type();
    const auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(
        type.sizes, type.strides, static_cast<size_t>(c10::elementSize(type.dtype))));
    blocks_.push_back({.live = {&value, use, bytes}, .is_owned = is_owned});
    now_ += bytes;
    share(value, blocks_.size() - 1);
    if (value.users().empty()) read_.push_back(blocks_.size() - 1);
  }

  void share(const Value& value, size_t block) {
    blocks_of_[&value] = block;
    readers_[&value] = value.users().size();
    if (!value.users().empty()) ++blocks_[block].num_readers;
    if (gradients_.contains(&value)) blocks_[block].live.use = MemoryUse::kGradient;
  }

  void look(size_t node) {
    profile_.bytes.push_back(now_);
    if (now_ <= profile_.peak_bytes) return;
    profile_.peak_bytes = now_;
    profile_.peak_node = node;
    profile_.alive_at_peak.clear();
    for (const Block& block : blocks_) {
      if (block.live.bytes > 0) profile_.alive_at_peak.push_back(block.live);
    }
    std::ranges::stable_sort(profile_.alive_at_peak, std::greater(), &LiveValue::bytes);
  }

  void release(size_t index) {
    Block& block = blocks_[index];
    if (block.is_owned || block.num_readers > 0) return;
    now_ -= std::exchange(block.live.bytes, 0);
  }

  const Graph& graph_;
  MemoryProfile profile_;
  std::vector<Block> blocks_;
  std::vector<size_t> read_;  ///< by the present node
  std::unordered_map<const Value*, size_t> blocks_of_;
  std::unordered_map<const Value*, size_t> readers_;
  std::unordered_set<const Value*> gradients_;
  int64_t now_ = 0;
};

}  // namespace

MemoryProfile memory_of(const Graph& graph) {
  check_types(graph);
  return Liveness(graph).run();
}

}  // namespace levin::graph
