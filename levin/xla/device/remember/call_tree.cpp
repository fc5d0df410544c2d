#include "levin/xla/device/remember/call_tree.h"

#include <algorithm>
#include <utility>

namespace levin::xla {

CallTree::Call* CallTree::Call::find(const CallKey& call) const {
  const auto is_it = [&](const Call* candidate) {
    const CallKey& known = candidate->key;
    if (known.schema != call.schema || known.words != call.words) return false;
    // The words tell where numbers stand.
    for (size_t i = 0; i < call.numbers.size(); ++i) {
      if (known.numbers[i].bits != call.numbers[i].bits && !candidate->may_differ[i]) return false;
    }
    return true;
  };
  const auto found = std::ranges::find_if(next, is_it);
  return found == next.end() ? nullptr : *found;
}

const CallTree::End* CallTree::Call::end_of(const std::vector<uint32_t>& seen,
                                            std::span<const uint64_t> numbers) const {
  const auto is_it = [&](const End& end) {
    if (end.seen != seen) return false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!end.is_given_anew[i] && end.numbers[i] != numbers[i]) return false;
    }
    return true;
  };
  const auto found = std::ranges::find_if(ends, is_it);
  return found == ends.end() ? nullptr : &*found;
}

CallTree::Call& CallTree::add(Call& before, Call&& call) {
  Call& added = calls_.emplace_back(std::move(call));
  added.before = &before;
  added.may_differ.assign(added.key.numbers.size(), false);
  before.next.insert(before.next.begin(), &added);
  is_full_ = is_full_ || calls_.size() >= kMostCalls || before.next.size() >= kMostNext;
  return added;
}

void CallTree::add_end(Call& last, End&& end) {
  for (Call* call = &last; call != nullptr; call = call->before) {
    for (size_t i = 0; i < call->may_differ.size(); ++i) {
      if (end.is_given_anew[call->num_numbers + i]) call->may_differ[i] = true;
    }
  }
  last.ends.insert(last.ends.begin(), std::move(end));
  is_full_ = is_full_ || last.ends.size() >= kMostNext;
}

std::vector<const CallTree::Call*> CallTree::path_to(const Call& last) {
  std::vector<const Call*> path;
  for (const Call* call = &last; call->before != nullptr; call = call->before) {
    path.push_back(call);
  }
  std::ranges::reverse(path);
  return path;
}

void CallTree::clear() {
  calls_.clear();
  calls_.emplace_back();
  is_full_ = false;
}

}  // namespace levin::xla
