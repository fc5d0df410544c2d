#include "levin/comm/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <span>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/collectives/named_group.h"

namespace levin::comm {
namespace {

constexpr std::array<std::pair<std::string_view, ReduceOp>, 5> kReduceOps = {{
    {"sum", ReduceOp::kSum},
    {"mean", ReduceOp::kMean},
    {"min", ReduceOp::kMin},
    {"max", ReduceOp::kMax},
    {"product", ReduceOp::kProduct},
}};

using Group = c10::intrusive_ptr<NamedGroup>;

std::span<const int64_t> span_of(at::IntArrayRef counts) { return {counts.data(), counts.size()}; }

// Each is the operator that ends with its result, and the one that wait_ ends.

template <Return when>
void all_reduce_kernel(at::TensorList tensors, const Group& group, c10::string_view op) {
  if (tensors.empty()) return;
  Work work = group->group().all_reduce(tensors.vec(), reduce_op_named(op), when);
  if (when == Return::kAsync) group->keep(tensors.front(), std::move(work));
}

template <Return when>
void all_gather_kernel(const at::Tensor& whole, const at::Tensor& part, at::IntArrayRef counts,
                       const Group& group) {
  Work work = group->group().all_gather(whole, part, span_of(counts), when);
  if (when == Return::kAsync) group->keep(whole, std::move(work));
}

template <Return when>
void reduce_scatter_kernel(const at::Tensor& part, const at::Tensor& whole, at::IntArrayRef counts,
                           c10::string_view op, const Group& group) {
  Work work =
      group->group().reduce_scatter(part, whole, reduce_op_named(op), span_of(counts), when);
  if (when == Return::kAsync) group->keep(part, std::move(work));
}

void wait_kernel(at::TensorList tensors, const Group& group) {
  if (!tensors.empty()) group->wait_for(tensors.front());
}

void broadcast_kernel(at::TensorList tensors, const Group& group, int64_t root) {
  ProcessGroup ranks = group->group();
  for (const at::Tensor& tensor : tensors) ranks.broadcast(tensor, root);
}

template <class Signature>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

std::string operator_name(const ProcessGroup& group) { return NamedGroup::of(group)->name(); }

std::string_view reduce_op_name(ReduceOp op) {
  for (const auto& [name, known] : kReduceOps) {
    if (known == op) return name;
  }
  LEVIN_FAIL("comm.reduce_op", "got reduce operation {}, wanted sum, mean, min, max or product",
             static_cast<int>(op));
}

ReduceOp reduce_op_named(std::string_view name) {
  for (const auto& [known, op] : kReduceOps) {
    if (known == name) return op;
  }
  LEVIN_FAIL("comm.reduce_op", "got '{}', wanted sum, mean, min, max or product", name);
}

void call_all_reduce(const std::vector<at::Tensor>& data, const ProcessGroup& group, ReduceOp op,
                     Return when) {
  using Signature = void(at::TensorList, const Group&, c10::string_view);
  static const auto done = typed<Signature>("levin::all_reduce_");
  static const auto started = typed<Signature>("levin::all_reduce_start_");
  (when == Return::kDone ? done : started).call(data, NamedGroup::of(group), reduce_op_name(op));
}

void call_wait(const std::vector<at::Tensor>& data, const ProcessGroup& group) {
  static const auto wait = typed<void(at::TensorList, const Group&)>("levin::wait_");
  wait.call(data, NamedGroup::of(group));
}

void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group, int64_t root) {
  static const auto broadcast =
      typed<void(at::TensorList, const Group&, int64_t)>("levin::broadcast_");
  broadcast.call(data, NamedGroup::of(group), root);
}

void call_all_gather(const at::Tensor& whole, const at::Tensor& part,
                     std::span<const int64_t> counts, const ProcessGroup& group) {
  static const auto all_gather =
      typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, const Group&)>(
          "levin::all_gather_");
  all_gather.call(whole, part, {counts.data(), counts.size()}, NamedGroup::of(group));
}

void call_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                         std::span<const int64_t> counts, ReduceOp op, const ProcessGroup& group) {
  static const auto reduce_scatter =
      typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, c10::string_view,
                 const Group&)>("levin::reduce_scatter_");
  reduce_scatter.call(part, whole, {counts.data(), counts.size()}, reduce_op_name(op),
                      NamedGroup::of(group));
}

TORCH_LIBRARY_FRAGMENT(levin, library) {
  const std::string& group = NamedGroup::parameter();
  const auto define = [&](const std::string& name, const std::string& parameters) {
    library.def((name + "(" + parameters + ") -> ()").c_str());
  };
  define("wait_", "Tensor(a!)[] tensors, " + group);
  define("broadcast_", "Tensor(a!)[] tensors, " + group + ", int root");
  for (const std::string suffix : {"_", "_start_"}) {
    define("all_reduce" + suffix, "Tensor(a!)[] tensors, " + group + ", str op");
    define("all_gather" + suffix, "Tensor(a!) whole, Tensor part, int[] counts, " + group);
    define("reduce_scatter" + suffix,
           "Tensor(a!) part, Tensor whole, int[] counts, str op, " + group);
  }
  const auto implement = [&](const char* name, auto* kernel) {
    library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
  };
  implement("all_reduce_", &all_reduce_kernel<Return::kDone>);
  implement("all_reduce_start_", &all_reduce_kernel<Return::kAsync>);
  implement("wait_", &wait_kernel);
  implement("broadcast_", &broadcast_kernel);
  implement("all_gather_", &all_gather_kernel<Return::kDone>);
  implement("all_gather_start_", &all_gather_kernel<Return::kAsync>);
  implement("reduce_scatter_", &reduce_scatter_kernel<Return::kDone>);
  implement("reduce_scatter_start_", &reduce_scatter_kernel<Return::kAsync>);
}

}  // namespace levin::comm
