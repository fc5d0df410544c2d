// The use of parameters: which ones the ranks agree on, which ones a later backward must use, and
// which ones no rank uses.

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/arrivals.h"
#include "levin/strategy/ddp/reducer.h"

namespace levin::ddp {
namespace {

std::string listed(const std::vector<NamedTensor>& names, const std::vector<size_t>& indices) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[indices[i]].name;
  }
  if (indices.size() > kMost) text += fmt::format(" and {} more", indices.size() - kMost);
  return text;
}

}  // namespace

void Reducer::check_expected(size_t index) const {
  if (is_expected(index)) return;
  const std::string& name = names_[index].name;
  LEVIN_CHECK(
      !carrier_->tells_used(), "strategy.ddp.static_graph",
      "parameter {} has a gradient but had none in the first step; set --ddp-static-graph false",
      name);
  LEVIN_FAIL("strategy.ddp.unused",
             "parameter {} has a gradient but had none in the first step; recorded steps must use "
             "the same parameters every time, so set --compile no",
             name);
}

/// Ranks tell each other once which parameters they used; the exchange is not recorded.
void Reducer::agree_on_use() {
  std::vector<int64_t> used;
  for (size_t index = 0; index < slots_.size(); ++index) {
    used.push_back(is_trained(index) && is_here(index) ? 1 : 0);
  }
  std::vector<int64_t> anywhere = used;
  if (agrees_) {
    const graph::UnseenScope unseen;
    const at::Tensor agreed = at::tensor(used, at::kLong);
    group_.all_reduce(agreed, ReduceOp::kMax);
    const auto* first = agreed.const_data_ptr<int64_t>();
    anywhere.assign(first, first + agreed.numel());
    if (!std::exchange(learnt_, true)) order_ = agree_on_order(group_, arrivals_, order_);
  }
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (!is_trained(index)) continue;
    slots_[index].use = anywhere[index] == 0 ? Use::kNowhere
                        : used[index] == 0   ? Use::kElsewhere
                                             : Use::kHere;
  }
  choose_members();
}

/// A rank cannot tell the others in a step that is replayed. A gradient that came to what only
/// others use is zero_grad's zeros, or of the step before, as on the other ranks.
void Reducer::check_use() const {
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (!is_trained(index)) continue;
    const Use use = slots_[index].use;
    if (use == Use::kNowhere && is_here(index)) check_expected(index);
    LEVIN_CHECK(
        use != Use::kHere || is_here(index), "strategy.ddp.unused",
        "parameter {} got no gradient but had one in the first step; recorded steps must use the "
        "same parameters every time, so use it in the loss, freeze it, or set --compile no",
        names_[index].name);
  }
}

void Reducer::settle_unused() {
  if (options_.static_graph && !settled_) {
    expected_.assign(parameters_.size(), true);
    for (const size_t index : unused_) expected_[index] = false;
    settled_ = true;
  }
  std::erase_if(unused_, [&](size_t index) { return !is_trained(index); });
  if (unused_.empty() || told_unused_) return;
  std::ranges::sort(unused_);
  const std::string names = listed(names_, unused_);
  LEVIN_CHECK(options_.find_unused_parameters, "strategy.ddp.unused",
              "{} of {} parameters got no gradient on any rank: {}; use them in the loss, freeze "
              "them, or set --ddp-find-unused-parameters true",
              unused_.size(), parameters_.size(), names);
  told_unused_ = true;
  log::warn("ddp: {} of {} parameters got no gradient in this backward: {}{}", unused_.size(),
            parameters_.size(), names,
            carrier_->tells_used() || !agrees_ ? "" : "; recorded steps cannot use them later");
}

}  // namespace levin::ddp
