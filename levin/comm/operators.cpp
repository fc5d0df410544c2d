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
at::IntArrayRef array_of(std::span<const int64_t> counts) { return {counts.data(), counts.size()}; }

// Each is the operator that ends with its result, and, with a sequence number, the one that wait_
// ends.

void keep(const Group& group, int64_t sequence, const at::Tensor& first, Work work) {
  group->keep({.sequence = sequence, .memory = first.const_data_ptr()}, std::move(work));
}

void all_reduce_kernel(at::TensorList tensors, const Group& group, c10::string_view op) {
  if (!tensors.empty()) group->group().all_reduce(tensors.vec(), reduce_op_named(op));
}
void all_reduce_start_kernel(at::TensorList tensors, const Group& group, c10::string_view op,
                             int64_t sequence) {
  if (tensors.empty()) return;
  keep(group, sequence, tensors.front(),
       group->group().all_reduce(tensors.vec(), reduce_op_named(op), Return::kAsync));
}

void all_gather_kernel(const at::Tensor& whole, const at::Tensor& part, at::IntArrayRef counts,
                       const Group& group) {
  group->group().all_gather(whole, part, span_of(counts));
}
void all_gather_start_kernel(const at::Tensor& whole, const at::Tensor& part,
                             at::IntArrayRef counts, const Group& group, int64_t sequence) {
  keep(group, sequence, whole,
       group->group().all_gather(whole, part, span_of(counts), Return::kAsync));
}

void reduce_scatter_kernel(const at::Tensor& part, const at::Tensor& whole, at::IntArrayRef counts,
                           c10::string_view op, const Group& group) {
  group->group().reduce_scatter(part, whole, reduce_op_named(op), span_of(counts));
}
void reduce_scatter_start_kernel(const at::Tensor& part, const at::Tensor& whole,
                                 at::IntArrayRef counts, c10::string_view op, const Group& group,
                                 int64_t sequence) {
  keep(group, sequence, part,
       group->group().reduce_scatter(part, whole, reduce_op_named(op), span_of(counts),
                                     Return::kAsync));
}

void all_to_all_kernel(const at::Tensor& received, const at::Tensor& sent,
                       at::IntArrayRef received_counts, at::IntArrayRef sent_counts,
                       const Group& group) {
  group->group().all_to_all(received, sent, span_of(received_counts), span_of(sent_counts));
}
void all_to_all_start_kernel(const at::Tensor& received, const at::Tensor& sent,
                             at::IntArrayRef received_counts, at::IntArrayRef sent_counts,
                             const Group& group, int64_t sequence) {
  keep(group, sequence, received,
       group->group().all_to_all(received, sent, span_of(received_counts), span_of(sent_counts),
                                 Return::kAsync));
}

void send_kernel(const at::Tensor& data, int64_t to, int64_t tag, const Group& group) {
  group->group().send(data, to, tag).wait();
}
void send_start_kernel(const at::Tensor& data, int64_t to, int64_t tag, const Group& group,
                       int64_t sequence) {
  keep(group, sequence, data, group->group().send(data, to, tag, Return::kAsync));
}

void recv_kernel(const at::Tensor& data, int64_t from, int64_t tag, const Group& group) {
  group->group().recv(data, from, tag).wait();
}
void recv_start_kernel(const at::Tensor& data, int64_t from, int64_t tag, const Group& group,
                       int64_t sequence) {
  keep(group, sequence, data, group->group().recv(data, from, tag, Return::kAsync));
}

/// A send writes to no tensor: the first that it sends is the one that it is known by.
void wait_kernel(at::TensorList tensors, const Group& group, at::TensorList sent,
                 int64_t sequence) {
  if (tensors.empty() && sent.empty()) return;
  const at::Tensor& first = tensors.empty() ? sent.front() : tensors.front();
  group->wait_for({.sequence = sequence, .memory = first.const_data_ptr()});
}

void broadcast_kernel(at::TensorList tensors, const Group& group, int64_t root) {
  ProcessGroup ranks = group->group();
  for (const at::Tensor& tensor : tensors) ranks.broadcast(tensor, root);
}

void barrier_kernel(at::TensorList /*tensors*/, const Group& group) { group->group().barrier(); }

void release_kernel(at::TensorList /*tensors*/) {}

template <class Signature>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

const auto& wait_operator() {
  static const auto wait =
      typed<void(at::TensorList, const Group&, at::TensorList, int64_t)>("levin::wait_");
  return wait;
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

void Started::wait() {
  if (!call_) return;
  const Call call = *std::exchange(call_, std::nullopt);
  wait_operator().call(call.received, NamedGroup::of(call.group), call.sent, call.sequence);
}

/// The two forms of a collective, whose operators take these arguments.
template <class... Arguments>
struct Forms {
  explicit Forms(const std::string& name)
      : done(typed<void(Arguments...)>((name + "_").c_str())),
        started(typed<void(Arguments..., int64_t)>((name + "_start_").c_str())) {}

  Started call(const Group& group, Return when, Started::Call tensors,
               Arguments... arguments) const {
    if (when == Return::kDone) {
      done.call(arguments...);
      return {};
    }
    tensors.sequence = group->next_sequence();
    started.call(arguments..., tensors.sequence);
    Started result;
    result.call_ = std::move(tensors);
    return result;
  }

  c10::TypedOperatorHandle<void(Arguments...)> done;
  c10::TypedOperatorHandle<void(Arguments..., int64_t)> started;
};

Started call_all_reduce(const std::vector<at::Tensor>& data, const ProcessGroup& group, ReduceOp op,
                        Return when) {
  static const Forms<at::TensorList, const Group&, c10::string_view> forms("levin::all_reduce");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {.received = data, .group = group}, data, named,
                    reduce_op_name(op));
}

void call_wait(const std::vector<at::Tensor>& data, const ProcessGroup& group) {
  if (data.empty()) return;
  const Group named = NamedGroup::of(group);
  wait_operator().call(data, named, {}, named->first_sequence_of(data.front().const_data_ptr()));
}

void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group, int64_t root) {
  static const auto broadcast =
      typed<void(at::TensorList, const Group&, int64_t)>("levin::broadcast_");
  broadcast.call(data, NamedGroup::of(group), root);
}

void call_barrier(const std::vector<at::Tensor>& data, const ProcessGroup& group) {
  static const auto barrier = typed<void(at::TensorList, const Group&)>("levin::barrier_");
  barrier.call(data, NamedGroup::of(group));
}

Started call_all_gather(const at::Tensor& whole, const at::Tensor& part,
                        std::span<const int64_t> counts, const ProcessGroup& group, Return when) {
  static const Forms<const at::Tensor&, const at::Tensor&, at::IntArrayRef, const Group&> forms(
      "levin::all_gather");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {{whole}, {part}, group}, whole, part, array_of(counts), named);
}

Started call_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                            std::span<const int64_t> counts, ReduceOp op, const ProcessGroup& group,
                            Return when) {
  static const Forms<const at::Tensor&, const at::Tensor&, at::IntArrayRef, c10::string_view,
                     const Group&>
      forms("levin::reduce_scatter");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {{part}, {whole}, group}, part, whole, array_of(counts),
                    reduce_op_name(op), named);
}

Started call_all_to_all(const at::Tensor& received, const at::Tensor& sent,
                        std::span<const int64_t> received_counts,
                        std::span<const int64_t> sent_counts, const ProcessGroup& group,
                        Return when) {
  static const Forms<const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef,
                     const Group&>
      forms("levin::all_to_all");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {{received}, {sent}, group}, received, sent,
                    array_of(received_counts), array_of(sent_counts), named);
}

Started call_send(const at::Tensor& data, int64_t to, int64_t tag, const ProcessGroup& group,
                  Return when) {
  static const Forms<const at::Tensor&, int64_t, int64_t, const Group&> forms("levin::send");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {{}, {data}, group}, data, to, tag, named);
}

Started call_recv(const at::Tensor& data, int64_t from, int64_t tag, const ProcessGroup& group,
                  Return when) {
  static const Forms<const at::Tensor&, int64_t, int64_t, const Group&> forms("levin::recv");
  const Group named = NamedGroup::of(group);
  return forms.call(named, when, {{data}, {}, group}, data, from, tag, named);
}

void call_release(const std::vector<at::Tensor>& data) {
  static const auto release = typed<void(at::TensorList)>("levin::release_");
  release.call(data);
}

TORCH_LIBRARY_FRAGMENT(levin, library) {
  const std::string& group = NamedGroup::parameter();
  const auto define = [&](const std::string& name, const std::string& parameters) {
    library.def((name + "(" + parameters + ") -> ()").c_str());
  };
  define("wait_", "Tensor(a!)[] tensors, " + group + ", Tensor[] sent, int sequence=0");
  define("broadcast_", "Tensor(a!)[] tensors, " + group + ", int root");
  define("barrier_", "Tensor(a!)[] tensors, " + group);
  define("release_", "Tensor(a!)[] tensors");
  const auto define_forms = [&](const std::string& name, const std::string& parameters) {
    define(name + "_", parameters);
    define(name + "_start_", parameters + ", int sequence=0");
  };
  define_forms("all_reduce", "Tensor(a!)[] tensors, " + group + ", str op");
  define_forms("all_gather", "Tensor(a!) whole, Tensor part, int[] counts, " + group);
  define_forms("reduce_scatter", "Tensor(a!) part, Tensor whole, int[] counts, str op, " + group);
  define_forms(
      "all_to_all",
      "Tensor(a!) received, Tensor sent, int[] received_counts, int[] sent_counts, " + group);
  define_forms("send", "Tensor data, int to, int tag, " + group);
  define_forms("recv", "Tensor(a!) data, int from, int tag, " + group);
  const auto implement = [&](const char* name, auto* kernel) {
    library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
  };
  implement("wait_", &wait_kernel);
  implement("broadcast_", &broadcast_kernel);
  implement("barrier_", &barrier_kernel);
  implement("release_", &release_kernel);
  implement("all_reduce_", &all_reduce_kernel);
  implement("all_reduce_start_", &all_reduce_start_kernel);
  implement("all_gather_", &all_gather_kernel);
  implement("all_gather_start_", &all_gather_start_kernel);
  implement("reduce_scatter_", &reduce_scatter_kernel);
  implement("reduce_scatter_start_", &reduce_scatter_start_kernel);
  implement("all_to_all_", &all_to_all_kernel);
  implement("all_to_all_start_", &all_to_all_start_kernel);
  implement("send_", &send_kernel);
  implement("send_start_", &send_start_kernel);
  implement("recv_", &recv_kernel);
  implement("recv_start_", &recv_start_kernel);
}

}  // namespace levin::comm
