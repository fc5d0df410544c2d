#include "levin/graph/cost/flops.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

namespace levin::graph {
namespace {

using Sizes = std::vector<int64_t>;

double numel(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0, std::multiplies());
}

/// [..., m, k] by [k, n]: two for each of the m * k * n products.
double product_flops(const Sizes& left, const Sizes& output) {
  return 2.0 * numel(output) * static_cast<double>(left.back());
}

/// For each element of the output, a product with each of the weights that reach it.
double convolution_flops(const Sizes& input, const Sizes& weight, const Sizes& output,
                         bool is_transposed) {
  if (weight.size() < 2 || weight[0] == 0) return 0.0;
  const double weights_of_channel = numel(weight) / static_cast<double>(weight[0]);
  return 2.0 * numel(is_transposed ? input : output) * weights_of_channel;
}

/// Counts one product for the gradient of the input, and one for that of the weight, if they are
/// wanted.
double convolution_backward_flops(const CallShapes& call) {
  const double forward =
      convolution_flops(call.inputs[1], call.inputs[2], call.inputs[0], call.is_transposed);
  return forward * ((call.input_gradient ? 1.0 : 0.0) + (call.weight_gradient ? 1.0 : 0.0));
}

/// Two products of [queries, keys]; the backward pass makes five.
double attention_flops(const Sizes& query, const Sizes& key, double products) {
  return products * 2.0 * numel(query) * static_cast<double>(key[key.size() - 2]);
}

double of_product(const CallShapes& call) { return product_flops(call.inputs[0], call.output); }
double of_added_product(const CallShapes& call) {
  return product_flops(call.inputs[1], call.output);
}
double of_convolution(const CallShapes& call) {
  return convolution_flops(call.inputs[0], call.inputs[1], call.output, call.is_transposed);
}
double of_attention(const CallShapes& call) {
  return attention_flops(call.inputs[0], call.inputs[1], 2);
}
double of_attention_backward(const CallShapes& call) {
  return attention_flops(call.inputs[1], call.inputs[2], 5);
}

struct Formula {
  size_t num_inputs = 2;
  double (*flops)(const CallShapes&) = nullptr;
};

const std::map<std::string_view, Formula>& formulas() {
  static const std::map<std::string_view, Formula> kFormulas = {
      {"aten::mm", {2, of_product}},
      {"aten::bmm", {2, of_product}},
      {"aten::mv", {2, of_product}},
      {"aten::addmm", {3, of_added_product}},
      {"aten::baddbmm", {3, of_added_product}},
      {"aten::convolution", {2, of_convolution}},
      {"aten::convolution_backward", {3, convolution_backward_flops}},
      {"aten::_scaled_dot_product_flash_attention", {2, of_attention}},
      {"aten::_scaled_dot_product_flash_attention_backward", {3, of_attention_backward}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {2, of_attention}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {3, of_attention_backward}},
      {"aten::_scaled_dot_product_efficient_attention", {2, of_attention}},
      {"aten::_scaled_dot_product_efficient_attention_backward", {3, of_attention_backward}},
      {"aten::_scaled_dot_product_cudnn_attention", {2, of_attention}},
      {"aten::_scaled_dot_product_cudnn_attention_backward", {3, of_attention_backward}},
  };
  return kFormulas;
}

/// Depth of calls with a formula in this thread: an operator inside of one is a part of it.
thread_local int64_t depth = 0;

Sizes sizes_of(const c10::IValue& value) {
  if (!value.isTensor()) return {};
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && !tensor.is_nested() ? tensor.sizes().vec() : Sizes();
}

/// An operator that is running, as autograd's threads and this one see it.
struct RunningCall : at::ObserverContext {
  RunningCall() { ++depth; }
  ~RunningCall() override { --depth; }
  std::string name;
  CallShapes shapes;
};

}  // namespace

struct FlopCounter::Count {
  double total = 0.0;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);
};

namespace {

/// LibTorch passes an observer no data of its own, so the counter that runs has a place here.
struct Running {
  std::mutex mutex;
  void* count = nullptr;
};

Running& running_count() {
  static Running running;
  return running;
}

}  // namespace

std::unique_ptr<at::ObserverContext> FlopCounter::Count::begin(const at::RecordFunction& call) {
  if (depth > 0) return nullptr;
  const auto formula = formulas().find(call.name());
  if (formula == formulas().end()) return nullptr;
  const auto inputs = call.inputs();
  if (inputs.size() < formula->second.num_inputs) return nullptr;
  auto running = std::make_unique<RunningCall>();
  running->name = formula->first;
  for (size_t i = 0; i < formula->second.num_inputs; ++i) {
    running->shapes.inputs.push_back(sizes_of(inputs[i]));
  }
  if (running->name == "aten::convolution") {
    running->shapes.is_transposed = inputs[6].toBool();
  } else if (running->name == "aten::convolution_backward") {
    running->shapes.is_transposed = inputs[7].toBool();
    const auto mask = inputs[10].toBoolList();
    running->shapes.input_gradient = mask[0];
    running->shapes.weight_gradient = mask[1];
  }
  return running;
}

void FlopCounter::Count::end(const at::RecordFunction& call, at::ObserverContext* context) {
  auto* running = static_cast<RunningCall*>(context);
  if (running == nullptr || call.outputs().empty()) return;
  running->shapes.output = sizes_of(call.outputs()[0]);
  const bool knows_all = std::ranges::none_of(running->shapes.inputs,
                                              [](const Sizes& sizes) { return sizes.empty(); });
  // The bias of addmm may be 0-dim.
  const bool is_added = running->name == "aten::addmm" || running->name == "aten::baddbmm";
  if (!knows_all && !is_added) return;
  const double flops = flops_of_call(running->name, running->shapes);
  const std::lock_guard lock(running_count().mutex);
  if (auto* count = static_cast<Count*>(running_count().count)) count->total += flops;
}

bool has_flop_formula(std::string_view name) { return formulas().contains(name); }

double flops_of_call(std::string_view name, const CallShapes& shapes) {
  return formulas().at(name).flops(shapes);
}

FlopCounter::FlopCounter() {
  auto count = std::make_shared<Count>();
  {
    const std::lock_guard lock(running_count().mutex);
    if (running_count().count != nullptr) return;
    running_count().count = count.get();
  }
  count_ = std::move(count);
  is_running_ = true;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Count::begin, &Count::end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() { stop(); }

void FlopCounter::stop() {
  if (!std::exchange(is_running_, false)) return;
  at::removeCallback(handle_);
  const std::lock_guard lock(running_count().mutex);
  running_count().count = nullptr;
}

std::optional<double> FlopCounter::flops() const {
  if (count_ == nullptr) return std::nullopt;
  const std::lock_guard lock(running_count().mutex);
  return count_->total;
}

}  // namespace levin::graph
