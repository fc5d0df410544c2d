#pragma once
// NamedGroup: a process group as an argument of operators. A recording's node holds it as a constant,
// so that a call and a replay have their group without a search; its name is for people and files.
//
//   c10::IValue argument = NamedGroup::of(world);   // __torch__.torch.classes.levin.ProcessGroup
//   NamedGroup::of(world)->group().all_reduce(gradient, ReduceOp::kMean);

#include <ATen/core/ivalue.h>

#include <compare>
#include <cstdint>
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

  /// How a wait finds the collective that was started: by a number, and by the memory of the first
  /// tensor. Tensors without elements have none, so that only the number tells them apart.
  struct Key {
    int64_t sequence = 0;
    const void* memory = nullptr;
    auto operator<=>(const Key&) const = default;
  };
  /// Keeps the work until wait_for(key), which gets works of one key in the order in which they
  /// began.
  void keep(const Key& key, Work work);
  /// Throws Error "comm.wait" if nothing was kept for this key, and what Work::wait throws.
  void wait_for(const Key& key);
  /// The smallest number that no work kept here has: the same in each step, if the steps before
  /// have waited for all that they started.
  int64_t next_sequence() const;
  /// The number of the work of this memory that was kept first; 0 if there is none.
  int64_t first_sequence_of(const void* memory) const;

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::weak_ptr<ProcessGroup::Impl> group_;
  struct Kept {
    int64_t age = 0;  ///< number of works that were kept before
    Work work;
  };
  std::map<Key, std::deque<Kept>> started_;
  int64_t num_kept_ = 0;
};

}  // namespace levin::comm
