#pragma once
// NamedGroup: a process group as an argument of operators. A recording's node holds it as a constant,
// so that a call and a replay have their group without a search; its name is for people and files.
//
//   c10::IValue argument = NamedGroup::of(world);   // __torch__.torch.classes.levin.ProcessGroup
//   NamedGroup::of(world)->group().all_reduce(gradient, ReduceOp::kMean);

#include <ATen/core/ivalue.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::comm {

/// A name has one of these in a process. It does not keep the group alive: the group's last owner
/// says goodbye to the other ranks, and a recording may outlive it; only work that is kept here holds
/// its group until somebody waits for it. A group that is connected later
/// under a name without a group takes it over, and with it what was recorded under that name.
class LEVIN_API NamedGroup final : public torch::CustomClassHolder {
 public:
  explicit NamedGroup(std::string name) : name_(std::move(name)) {}

  /// The same one as long as the group lives. The name is the same on all of the group's ranks:
  /// "self" for one rank, "world", or a sub-group's.
  static c10::intrusive_ptr<NamedGroup> of(const ProcessGroup& group);
  /// The one that a file names. There may be no group of that name in this process, as where a
  /// graph is only looked at.
  static c10::intrusive_ptr<NamedGroup> called(const std::string& name);
  /// nullptr for a constant that is no group.
  static c10::intrusive_ptr<NamedGroup> in(const c10::IValue& constant);

  /// "__torch__.torch.classes.levin.ProcessGroup group", as schemas of operators have it. LibTorch
  /// knows the class from the first call on.
  static const std::string& parameter();

  const std::string& name() const { return name_; }
  /// Throws Error "comm.group" if there is no group.
  ProcessGroup group() const;

  /// Keeps the work until wait_for(first), which gets it in the order in which works of one tensor
  /// began.
  void keep(const at::Tensor& first, Work work);
  /// Throws Error "comm.wait" if nothing was kept for this tensor, and what Work::wait throws.
  void wait_for(const at::Tensor& first);

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::weak_ptr<ProcessGroup::Impl> group_;
  /// By the tensor's memory. Tensors without elements have none, and share a place.
  std::map<const void*, std::deque<Work>> started_;
};

}  // namespace levin::comm
