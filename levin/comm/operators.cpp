#include "levin/comm/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/process_group_impl.h"

namespace levin::comm {

/// A kernel is a plain function that gets tensors, numbers and words: this is how it finds its
/// group, and the work that another call of it has begun.
struct NamedGroups {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<ProcessGroup::Impl>> groups;
  /// By group and the memory of the list's first tensor, in the order in which they began: those
  /// of tensors without elements have none.
  std::map<std::pair<std::string, const void*>, std::deque<Work>> started;

  static NamedGroups& of_process() {
    static NamedGroups groups;
    return groups;
  }
  static void note(const at::Tensor& first, c10::string_view group, Work work);
  static std::string add(const ProcessGroup& group);
  static ProcessGroup find(const std::string& name);
};

namespace {

constexpr std::array<std::pair<std::string_view, ReduceOp>, 5> kReduceOps = {{
    {"sum", ReduceOp::kSum},
    {"mean", ReduceOp::kMean},
    {"min", ReduceOp::kMin},
    {"max", ReduceOp::kMax},
    {"product", ReduceOp::kProduct},
}};

void all_reduce_kernel(at::TensorList tensors, c10::string_view group, c10::string_view op) {
  if (tensors.empty()) return;
  group_named(std::string(group)).all_reduce(tensors.vec(), reduce_op_named(op));
}

void all_reduce_start_kernel(at::TensorList tensors, c10::string_view group, c10::string_view op) {
  if (tensors.empty()) return;
  NamedGroups::note(tensors.front(), group,
                    group_named(std::string(group))
                        .all_reduce(tensors.vec(), reduce_op_named(op), Return::kStarted));
}

std::span<const int64_t> span_of(at::IntArrayRef counts) { return {counts.data(), counts.size()}; }

void all_gather_kernel(const at::Tensor& whole, const at::Tensor& part, at::IntArrayRef counts,
                       c10::string_view group) {
  group_named(std::string(group)).all_gather(whole, part, span_of(counts));
}

void all_gather_start_kernel(const at::Tensor& whole, const at::Tensor& part,
                             at::IntArrayRef counts, c10::string_view group) {
  NamedGroups::note(
      whole, group,
      group_named(std::string(group)).all_gather(whole, part, span_of(counts), Return::kStarted));
}

void reduce_scatter_kernel(const at::Tensor& part, const at::Tensor& whole, at::IntArrayRef counts,
                           c10::string_view op, c10::string_view group) {
  group_named(std::string(group)).reduce_scatter(part, whole, reduce_op_named(op), span_of(counts));
}

void reduce_scatter_start_kernel(const at::Tensor& part, const at::Tensor& whole,
                                 at::IntArrayRef counts, c10::string_view op,
                                 c10::string_view group) {
  NamedGroups::note(
      part, group,
      group_named(std::string(group))
          .reduce_scatter(part, whole, reduce_op_named(op), span_of(counts), Return::kStarted));
}

void wait_kernel(at::TensorList tensors, c10::string_view group) {
  if (tensors.empty()) return;
  Work work;
  {
    NamedGroups& groups = NamedGroups::of_process();
    const std::scoped_lock lock(groups.mutex);
    const auto started =
        groups.started.find({std::string(group), tensors.front().const_data_ptr()});
    LEVIN_CHECK(started != groups.started.end(), "comm.wait",
                "nothing was started in group {} for these {} tensors; wait once for each start",
                group, tensors.size());
    work = std::move(started->second.front());
    started->second.pop_front();
    if (started->second.empty()) groups.started.erase(started);
  }
  work.wait();
}

void broadcast_kernel(at::TensorList tensors, c10::string_view group, int64_t root) {
  ProcessGroup ranks = group_named(std::string(group));
  for (const at::Tensor& tensor : tensors) ranks.broadcast(tensor, root);
}

template <class Signature>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

void NamedGroups::note(const at::Tensor& first, c10::string_view group, Work work) {
  NamedGroups& all = of_process();
  const std::scoped_lock lock(all.mutex);
  all.started[{std::string(group), first.const_data_ptr()}].push_back(std::move(work));
}

std::string NamedGroups::add(const ProcessGroup& group) {
  const std::string& label = group.impl_->label;
  if (group.impl_->alone()) return "self";
  NamedGroups& all = of_process();
  const std::scoped_lock lock(all.mutex);
  for (int64_t number = 1;; ++number) {
    const std::string name = number == 1 ? label : fmt::format("{}#{}", label, number);
    auto& place = all.groups[name];
    if (place.lock() == group.impl_) return name;
    if (!place.expired()) continue;
    place = group.impl_;
    return name;
  }
}

ProcessGroup NamedGroups::find(const std::string& name) {
  if (name == "self") return {};
  NamedGroups& all = of_process();
  const std::scoped_lock lock(all.mutex);
  const auto place = all.groups.find(name);
  auto impl = place == all.groups.end() ? nullptr : place->second.lock();
  LEVIN_CHECK(impl != nullptr, "comm.group",
              "no group is called {} in this process; connect it, and ask operator_name for its "
              "name",
              name);
  return ProcessGroup(std::move(impl));
}

std::string operator_name(const ProcessGroup& group) { return NamedGroups::add(group); }
ProcessGroup group_named(const std::string& name) { return NamedGroups::find(name); }

std::string_view reduce_op_name(ReduceOp op) {
  for (const auto& [name, known] : kReduceOps) {
    if (known == op) return name;
  }
  LEVIN_FAIL("comm.reduce_op", "got the number {}", static_cast<int>(op));
}

ReduceOp reduce_op_named(std::string_view name) {
  for (const auto& [known, op] : kReduceOps) {
    if (known == name) return op;
  }
  LEVIN_FAIL("comm.reduce_op", "got '{}', wanted sum, mean, min, max or product", name);
}

void call_all_reduce(const std::vector<at::Tensor>& data, const ProcessGroup& group, ReduceOp op) {
  static const auto all_reduce =
      typed<void(at::TensorList, c10::string_view, c10::string_view)>("levin::all_reduce_");
  all_reduce.call(data, operator_name(group), reduce_op_name(op));
}

void call_all_reduce_start(const std::vector<at::Tensor>& data, const ProcessGroup& group,
                           ReduceOp op) {
  static const auto start =
      typed<void(at::TensorList, c10::string_view, c10::string_view)>("levin::all_reduce_start_");
  start.call(data, operator_name(group), reduce_op_name(op));
}

void call_wait(const std::vector<at::Tensor>& data, const ProcessGroup& group) {
  static const auto wait = typed<void(at::TensorList, c10::string_view)>("levin::wait_");
  wait.call(data, operator_name(group));
}

void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group, int64_t root) {
  static const auto broadcast =
      typed<void(at::TensorList, c10::string_view, int64_t)>("levin::broadcast_");
  broadcast.call(data, operator_name(group), root);
}

void call_all_gather(const at::Tensor& whole, const at::Tensor& part,
                     std::span<const int64_t> counts, const ProcessGroup& group) {
  static const auto all_gather =
      typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, c10::string_view)>(
          "levin::all_gather_");
  all_gather.call(whole, part, {counts.data(), counts.size()}, operator_name(group));
}

void call_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                         std::span<const int64_t> counts, ReduceOp op, const ProcessGroup& group) {
  static const auto reduce_scatter =
      typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, c10::string_view,
                 c10::string_view)>("levin::reduce_scatter_");
  reduce_scatter.call(part, whole, {counts.data(), counts.size()}, reduce_op_name(op),
                      operator_name(group));
}

TORCH_LIBRARY_FRAGMENT(levin, library) {
  library.def("all_reduce_(Tensor(a!)[] tensors, str group, str op) -> ()");
  library.def("all_reduce_start_(Tensor(a!)[] tensors, str group, str op) -> ()");
  library.def("wait_(Tensor(a!)[] tensors, str group) -> ()");
  library.def("broadcast_(Tensor(a!)[] tensors, str group, int root) -> ()");
  const std::string gathered = "(Tensor(a!) whole, Tensor part, int[] counts, str group) -> ()";
  const std::string scattered =
      "(Tensor(a!) part, Tensor whole, int[] counts, str op, str group) -> ()";
  for (const std::string name : {"all_gather_", "all_gather_start_"}) {
    library.def((name + gathered).c_str());
  }
  for (const std::string name : {"reduce_scatter_", "reduce_scatter_start_"}) {
    library.def((name + scattered).c_str());
  }
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
  library.impl("all_reduce_", torch::dispatch(kAnyDevice, &all_reduce_kernel));
  library.impl("all_reduce_start_", torch::dispatch(kAnyDevice, &all_reduce_start_kernel));
  library.impl("wait_", torch::dispatch(kAnyDevice, &wait_kernel));
  library.impl("broadcast_", torch::dispatch(kAnyDevice, &broadcast_kernel));
  library.impl("all_gather_", torch::dispatch(kAnyDevice, &all_gather_kernel));
  library.impl("all_gather_start_", torch::dispatch(kAnyDevice, &all_gather_start_kernel));
  library.impl("reduce_scatter_", torch::dispatch(kAnyDevice, &reduce_scatter_kernel));
  library.impl("reduce_scatter_start_", torch::dispatch(kAnyDevice, &reduce_scatter_start_kernel));
}

}  // namespace levin::comm
