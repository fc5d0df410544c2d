#include "levin/comm/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/process_group_impl.h"

namespace levin::comm {

/// A kernel is a plain function that gets tensors, numbers and words: this is how it finds its
/// group, and the work that another call of it has begun.
struct NamedGroups {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<ProcessGroup::Impl>> groups;
  std::map<const void*, Work> started;  ///< by the memory of the list's first tensor

  static NamedGroups& of_process() {
    static NamedGroups groups;
    return groups;
  }
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
  Work work = group_named(std::string(group))
                  .all_reduce(tensors.vec(), reduce_op_named(op), Return::kStarted);
  NamedGroups& groups = NamedGroups::of_process();
  const std::scoped_lock lock(groups.mutex);
  groups.started[tensors.front().const_data_ptr()] = std::move(work);
}

void wait_kernel(at::TensorList tensors, c10::string_view group) {
  if (tensors.empty()) return;
  Work work;
  {
    NamedGroups& groups = NamedGroups::of_process();
    const std::scoped_lock lock(groups.mutex);
    const auto started = groups.started.find(tensors.front().const_data_ptr());
    LEVIN_CHECK(started != groups.started.end(), "comm.wait",
                "nothing was started in group {} for these {} tensors; wait once for each start",
                group, tensors.size());
    work = std::move(started->second);
    groups.started.erase(started);
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

void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group, int64_t root) {
  static const auto broadcast =
      typed<void(at::TensorList, c10::string_view, int64_t)>("levin::broadcast_");
  broadcast.call(data, operator_name(group), root);
}

TORCH_LIBRARY_FRAGMENT(levin, library) {
  library.def("all_reduce_(Tensor(a!)[] tensors, str group, str op) -> ()");
  library.def("all_reduce_start_(Tensor(a!)[] tensors, str group, str op) -> ()");
  library.def("wait_(Tensor(a!)[] tensors, str group) -> ()");
  library.def("broadcast_(Tensor(a!)[] tensors, str group, int root) -> ()");
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
  library.impl("all_reduce_", torch::dispatch(kAnyDevice, &all_reduce_kernel));
  library.impl("all_reduce_start_", torch::dispatch(kAnyDevice, &all_reduce_start_kernel));
  library.impl("wait_", torch::dispatch(kAnyDevice, &wait_kernel));
  library.impl("broadcast_", torch::dispatch(kAnyDevice, &broadcast_kernel));
}

}  // namespace levin::comm
