#include "levin/comm/collectives/named_group.h"

#include <torch/custom_class.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/comm/process_group_impl.h"

namespace levin::comm {
namespace {

/// A group of one rank: all of them are alike.
struct Alone {
  ProcessGroup group;
  c10::intrusive_ptr<NamedGroup> named = c10::make_intrusive<NamedGroup>("self");
};

/// By name, in this process: a name has one object as long as somebody holds it.
c10::intrusive_ptr<NamedGroup> find_or_make(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, c10::weak_intrusive_ptr<NamedGroup>> held;
  const std::scoped_lock lock(mutex);
  const auto known = held.find(name);
  if (known != held.end()) {
    if (auto named = known->second.lock()) return named;
  }
  std::erase_if(held, [](const auto& entry) { return entry.second.expired(); });
  auto made = c10::make_intrusive<NamedGroup>(name);
  held.emplace(name, made);
  return made;
}

}  // namespace

c10::intrusive_ptr<NamedGroup> NamedGroup::called(const std::string& name) {
  if (name != "self") return find_or_make(name);
  static const Alone& alone = *[] {
    auto* made = new Alone();
    made->named->group_ = made->group.impl_;
    return made;
  }();
  return alone.named;
}

c10::intrusive_ptr<NamedGroup> NamedGroup::of(const ProcessGroup& group) {
  ProcessGroup::Impl& impl = *group.impl_;
  if (impl.alone()) return called("self");
  std::call_once(impl.naming, [&] {
    for (int64_t number = 1; impl.named == nullptr; ++number) {
      auto named =
          find_or_make(number == 1 ? impl.label : fmt::format("{}#{}", impl.label, number));
      const std::scoped_lock lock(named->mutex_);
      if (!named->group_.expired()) continue;
      named->group_ = group.impl_;
      impl.named = named;
    }
  });
  return impl.named;
}

const std::string& NamedGroup::parameter() {
  static const torch::class_<NamedGroup> known("levin", "ProcessGroup");
  static const std::string text = "__torch__.torch.classes.levin.ProcessGroup group";
  return text;
}

c10::intrusive_ptr<NamedGroup> NamedGroup::in(const c10::IValue& constant) {
  static const c10::TypePtr type = c10::getCustomClassType<c10::intrusive_ptr<NamedGroup>>();
  const bool is_group = constant.isObject() && *constant.type() == *type;
  return is_group ? constant.toCustomClass<NamedGroup>() : nullptr;
}

ProcessGroup NamedGroup::group() const {
  std::unique_lock lock(mutex_);
  auto impl = group_.lock();
  lock.unlock();
  LEVIN_CHECK(impl != nullptr, "comm.group",
              "this process has no group named {}; connect the group first, and take its name from "
              "operator_name",
              name_);
  return ProcessGroup(std::move(impl));
}

void NamedGroup::keep(const Key& key, Work work) {
  const std::scoped_lock lock(mutex_);
  started_[key].push_back({num_kept_++, std::move(work)});
}

void NamedGroup::wait_for(const Key& key) {
  std::unique_lock lock(mutex_);
  const auto started = started_.find(key);
  LEVIN_CHECK(started != started_.end(), "comm.wait",
              "group {} has no started collective number {} for these tensors; call wait once for "
              "each start",
              name_, key.sequence);
  Work work = std::move(started->second.front().work);
  started->second.pop_front();
  if (started->second.empty()) started_.erase(started);
  lock.unlock();
  work.wait();
}

int64_t NamedGroup::next_sequence() const {
  const std::scoped_lock lock(mutex_);
  int64_t next = 0;
  for (const auto& [key, works] : started_) {  // in the order of their numbers
    if (key.sequence > next) break;
    if (key.sequence == next) ++next;
  }
  return next;
}

int64_t NamedGroup::first_sequence_of(const void* memory) const {
  const std::scoped_lock lock(mutex_);
  const Kept* first = nullptr;
  int64_t sequence = 0;
  for (const auto& [key, works] : started_) {
    if (key.memory != memory || (first != nullptr && first->age < works.front().age)) continue;
    first = &works.front();
    sequence = key.sequence;
  }
  return sequence;
}

}  // namespace levin::comm
